"""What happens in runs, made readable: state, progress, results, logs and the event feed."""
