"""Generators that give training images back, judged."""
