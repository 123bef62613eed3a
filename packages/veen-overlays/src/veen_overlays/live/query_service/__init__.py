"""The Query API as a service: principals, jobs and their states, results, records, HTTP (query-api-spec).

``routes`` answers HTTP requests. ``service`` accepts, runs and returns queries. ``job_store`` and
``result_files`` keep them on disk. ``recording`` writes requests, digests and accesses to the log through the
``RecordLog`` protocol: this package knows no hub client, the program that starts the service brings one.
"""
