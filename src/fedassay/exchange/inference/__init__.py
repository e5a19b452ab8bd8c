"""Kinds of arrays that nobody declared, from the arrays' own algebra."""
