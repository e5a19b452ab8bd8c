"""Heads in closed form from statistics that are sent once: AFL, Fed3R, GH-OFL, one-shot ridge, FedCOF, FedNCM."""
