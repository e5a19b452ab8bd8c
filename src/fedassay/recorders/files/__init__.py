"""Files that other systems leave on disk, read as the messages that they hold."""
