"""Checks by a client of a file from a server: is it what it is said to be, and is it a trap?"""
