"""A hub judged from outside.

Conformance, property, fuzz, fault, product and performance suites that judge a hub
from outside.
Nothing is built yet.
"""
