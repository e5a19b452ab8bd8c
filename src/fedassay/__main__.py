"""`python -m fedassay` is `fedassay`."""

from fedassay.cli import main

if __name__ == "__main__":
    main()
