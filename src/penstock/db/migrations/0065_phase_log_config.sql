-- migration: phase_log_config
-- breaking: no
-- The config whose flow a logged phase belongs to, so that a backfill of a config skips only what that
-- config processed.

-- both
-- 0: a flow without a config. NULL: logged before this migration, or by a process of the release
-- before it.
ALTER TABLE phase_completion_log ADD COLUMN config_id bigint;
