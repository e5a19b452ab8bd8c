"""The version of the package, where every module can read it without importing the package's public face."""

__version__ = "1.0.0"
