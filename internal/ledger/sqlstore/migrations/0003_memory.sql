-- The memory image of a snapshot, and of a workspace's head: root '' is none.
-- memory_machine is the fingerprint of the machines that can restore it,
-- memory_until when it is dropped (the default is no time). The bytes are the
-- garbage collector's.
ALTER TABLE snapshots ADD COLUMN memory_root TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN memory_machine TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN memory_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN memory_until BIGINT NOT NULL DEFAULT -62135596800000000;
ALTER TABLE workspaces ADD COLUMN memory_root TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN memory_machine TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN memory_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workspaces ADD COLUMN memory_until BIGINT NOT NULL DEFAULT -62135596800000000;
CREATE INDEX snapshots_memory ON snapshots (memory_until) WHERE memory_root <> '';
CREATE INDEX workspaces_memory ON workspaces (memory_until) WHERE memory_root <> '';
