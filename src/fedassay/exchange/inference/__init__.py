"""Infer the kinds of undeclared arrays from the arrays' own algebra."""
