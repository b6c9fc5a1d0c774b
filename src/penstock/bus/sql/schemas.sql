-- Schemas of messages and their revisions.

-- fragment: schema_columns
r.revision, r.customer, r.name, r.revision_id, r.kind, r.definition, r.created_at

-- name: bus_schema_add
-- Add a revision of a schema.
-- scope: system (the parameters name the customer)
INSERT INTO schema_revisions (customer, name, revision_id, kind, definition, created_at, created_by)
VALUES (:customer, :name, :revision_id, :kind, :definition, {{now}}, :actor)
ON CONFLICT (customer, name, revision_id) DO NOTHING
RETURNING revision;

-- name: bus_schema_revisions
-- Revisions of a schema, newest first.
SELECT {{schema_columns}} FROM schema_revisions r
WHERE r.customer = :customer AND r.name = :name AND r.revision < :before
ORDER BY r.revision DESC LIMIT :limit;

-- name: bus_schema_revision
-- One revision of a schema.
SELECT {{schema_columns}} FROM schema_revisions r
WHERE r.customer = :customer AND r.name = :name AND r.revision_id = :revision_id;

-- name: bus_schema_list
-- Schemas by name, each with its latest revision.
SELECT {{schema_columns}} FROM schema_revisions r
WHERE r.customer = :customer AND r.name > :after
    AND r.revision = (SELECT max(o.revision) FROM schema_revisions o
        WHERE o.customer = r.customer AND o.name = r.name)
ORDER BY r.name LIMIT :limit;

-- name: bus_schema_delete
-- Delete one revision of a schema, or all of them.
DELETE FROM schema_revisions WHERE customer = :customer AND name = :name
    AND (CAST(:revision_id AS text) IS NULL OR revision_id = :revision_id)
RETURNING revision;

-- name: bus_schema_key_lock [postgres]
-- Serialize changes of one schema, so that a name is created once.
-- scope: system (a lock, no rows)
SELECT pg_advisory_xact_lock(1297, CAST(hashtextextended(CAST(:name AS text), :customer) & 2147483647 AS integer));

-- name: bus_schema_key_lock [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (a lock, no rows)
SELECT 1 WHERE :name IS NULL AND :customer IS NULL;
