-- Namespaces that were created while the broker ran, and snapshots of namespaces, which are namespaces
-- that no client can use. Namespaces of the config file have no row.

CREATE TABLE namespaces (
    name       TEXT PRIMARY KEY,
    definition TEXT NOT NULL
) WITHOUT ROWID;
