-- A veto of hibernation for want of work, until it expires.
CREATE TABLE holds (
    workspace TEXT   NOT NULL PRIMARY KEY REFERENCES workspaces (id),
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    principal TEXT   NOT NULL,
    reason    TEXT   NOT NULL,
    created   BIGINT NOT NULL,
    expires   BIGINT NOT NULL
);
CREATE INDEX holds_expires ON holds (expires);

-- Why a workspace that is hibernated is. since is that of the newest activity,
-- principal who was in it last.
CREATE TABLE sleeps (
    workspace TEXT   NOT NULL PRIMARY KEY REFERENCES workspaces (id),
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    reason    TEXT   NOT NULL,
    slept     BIGINT NOT NULL,
    since     BIGINT NOT NULL,
    principal TEXT   NOT NULL,
    detail    TEXT   NOT NULL
);

-- Hibernations, and how right they were. took is in microseconds.
CREATE TABLE idle_counts (
    tenant TEXT   NOT NULL,
    region TEXT   NOT NULL,
    name   TEXT   NOT NULL,
    class  TEXT   NOT NULL,
    reason TEXT   NOT NULL,
    n      BIGINT NOT NULL,
    took   BIGINT NOT NULL,
    PRIMARY KEY (tenant, region, name, class, reason)
);

-- The newest time past its window that was counted of an instance.
ALTER TABLE instances ADD COLUMN idle_stretch BIGINT NOT NULL DEFAULT 0;
