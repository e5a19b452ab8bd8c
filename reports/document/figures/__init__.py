"""Figures as inline SVG, drawn from data: crisp at any size, coloured by the page's style sheet.

Every figure comes with a title, a description for those who cannot see it, and the numbers it was
drawn from, which are also a CSV in tables/.
"""
