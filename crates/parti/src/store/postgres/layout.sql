-- What Parti keeps in PostgreSQL. {schema} stands for the schema's name.
CREATE SCHEMA IF NOT EXISTS {schema};

CREATE SEQUENCE IF NOT EXISTS {schema}.revisions;

CREATE TABLE IF NOT EXISTS {schema}.records (
    key         text COLLATE "C" PRIMARY KEY,
    value       bytea,
    revision    bigint NOT NULL,
    replaced    bigint NOT NULL,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    updated_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 60);

COMMENT ON TABLE {schema}.records IS
    'Records of Parti. Look, but do not write: see the view records_readable.';
COMMENT ON COLUMN {schema}.records.value IS
    'NULL: deleted. Such a row is kept for an hour, so that watchers learn of it.';
COMMENT ON COLUMN {schema}.records.revision IS
    'Grows with every write of a key, also across a delete.';
COMMENT ON COLUMN {schema}.records.replaced IS
    'The revision that the last write expected and replaced, 0 if it expected none.';
COMMENT ON COLUMN {schema}.records.transaction IS
    'The transaction of the last write: how a watcher finds what it has not seen.';

CREATE OR REPLACE FUNCTION {schema}.text_of(value bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN RETURN convert_from(value, 'UTF8'); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;

CREATE OR REPLACE FUNCTION {schema}.json_of(value bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN RETURN convert_from(value, 'UTF8')::jsonb; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;

CREATE OR REPLACE FUNCTION {schema}.number_of(value jsonb) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE jsonb_typeof(value) WHEN 'number' THEN value::numeric END $$;

CREATE OR REPLACE VIEW {schema}.records_readable AS
    SELECT key, revision, updated_at, octet_length(value) AS bytes,
           {schema}.json_of(value) AS json, {schema}.text_of(value) AS text
      FROM {schema}.records WHERE value IS NOT NULL;

CREATE OR REPLACE VIEW {schema}.checkpoints AS
    SELECT split_part(key, '/', 2) AS grp,
           split_part(key, '/', 3) AS partition,
           json ->> 'owner' AS owner,
           {schema}.number_of(json -> 'incarnation') AS incarnation,
           {schema}.number_of(json -> 'epoch') AS epoch,
           {schema}.number_of(json -> 'offset') AS done_offset,
           {schema}.number_of(json -> 'next_offset') AS next_offset,
           {schema}.number_of(json #> '{begun,offset}') AS begun_offset,
           to_timestamp({schema}.number_of(json -> 'claimed_at')::float8 / 1000) AS claimed_at,
           updated_at, revision
      FROM {schema}.records_readable WHERE starts_with(key, 'partitions/');

CREATE TABLE IF NOT EXISTS {schema}.format (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL
);
INSERT INTO {schema}.format (version) VALUES (1) ON CONFLICT DO NOTHING;
