"""WHAT OPERATORS DO BY HAND: each act is a function that takes who does it and returns what came of it.

An act and its line in the audit count together. Commands and remote control are only its faces.
"""
