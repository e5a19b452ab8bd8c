"""The toy package is somebody else's: it is installed by its test, and never imported here."""

collect_ignore = ["toy_package"]
