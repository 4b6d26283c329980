"""``python -m gangwise``."""

from gangwise.cli import main

if __name__ == "__main__":
    main()
