"""The Server Drive Recorder (products-spec-1 §3, SDR0): recorder events, migrations and query audits.

``records`` declares the records.
"""
