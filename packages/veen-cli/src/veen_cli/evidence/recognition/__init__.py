"""Recognize what a file contains: any kind of object that VEEN writes, or a file of another program."""
