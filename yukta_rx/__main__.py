"""`python -m yukta_rx` is the `yukta` command."""

from yukta_rx.cli.main import main

if __name__ == "__main__":
    main()
