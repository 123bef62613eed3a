"""Admission: the table of §8.2, and the state its rows ask for."""
