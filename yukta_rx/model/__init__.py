"""The vocabulary that every other room shares: messages, documents, statuses and events."""
