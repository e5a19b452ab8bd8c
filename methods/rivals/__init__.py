"""The releases that the four methods are compared with."""
