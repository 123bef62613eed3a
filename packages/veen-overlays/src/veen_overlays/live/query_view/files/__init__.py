"""A view on disk: data files, nodes, the manifest that names them, and how small files are merged."""
