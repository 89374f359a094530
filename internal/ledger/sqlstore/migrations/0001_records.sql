-- Times are microseconds since 1970 in UTC, sizes bytes, JSON is text.
-- Every record has a tenant and a region.

CREATE TABLE deployments (
    id      TEXT   NOT NULL PRIMARY KEY,
    tenant  TEXT   NOT NULL,
    region  TEXT   NOT NULL,
    created BIGINT NOT NULL
);

CREATE TABLE tenants (
    tenant  TEXT   NOT NULL PRIMARY KEY,
    region  TEXT   NOT NULL,
    created BIGINT NOT NULL
);

CREATE TABLE principals (
    id      TEXT   NOT NULL PRIMARY KEY,
    tenant  TEXT   NOT NULL,
    region  TEXT   NOT NULL,
    name    TEXT   NOT NULL UNIQUE,
    class   TEXT   NOT NULL,
    role    TEXT   NOT NULL,
    created BIGINT NOT NULL
);

-- A token's secret is nowhere: hash is its SHA-256.
CREATE TABLE tokens (
    id        TEXT   NOT NULL PRIMARY KEY,
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    principal TEXT   NOT NULL REFERENCES principals (id),
    name      TEXT   NOT NULL UNIQUE,
    hash      BLOB   NOT NULL UNIQUE,
    created   BIGINT NOT NULL,
    expires   BIGINT NOT NULL,
    last_used BIGINT NOT NULL
);

CREATE TABLE nodes (
    id        TEXT   NOT NULL PRIMARY KEY,
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    name      TEXT   NOT NULL,
    driver    TEXT   NOT NULL,
    boot_id   TEXT   NOT NULL,
    version   TEXT   NOT NULL,
    vcpus     BIGINT NOT NULL,
    memory    BIGINT NOT NULL,
    disk      BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    created   BIGINT NOT NULL
);

-- head is the id of the newest generation.
CREATE TABLE images (
    id      TEXT   NOT NULL PRIMARY KEY,
    tenant  TEXT   NOT NULL,
    region  TEXT   NOT NULL,
    name    TEXT   NOT NULL UNIQUE,
    head    TEXT   NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL
);

-- number orders the generations of one image.
CREATE TABLE generations (
    id           TEXT   NOT NULL PRIMARY KEY,
    tenant       TEXT   NOT NULL,
    region       TEXT   NOT NULL,
    image        TEXT   NOT NULL REFERENCES images (id),
    number       BIGINT NOT NULL,
    root         TEXT   NOT NULL,
    source       TEXT   NOT NULL,
    disk_bytes   BIGINT NOT NULL,
    used_bytes   BIGINT NOT NULL,
    stored_bytes BIGINT NOT NULL,
    created      BIGINT NOT NULL,
    UNIQUE (image, number)
);

-- One row for everything an instance ever ran for, and its epoch. No row is
-- ever deleted: this is what keeps a removed workspace's id from being used
-- again, and its epoch from starting over.
CREATE TABLE subjects (
    kind   TEXT   NOT NULL,
    id     TEXT   NOT NULL,
    tenant TEXT   NOT NULL,
    region TEXT   NOT NULL,
    epoch  BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- A workspace has no host.
CREATE TABLE workspaces (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant     TEXT   NOT NULL,
    region     TEXT   NOT NULL,
    owner      TEXT   NOT NULL,
    name       TEXT   NOT NULL UNIQUE,
    class      TEXT   NOT NULL,
    tier       TEXT   NOT NULL,
    vcpus      BIGINT NOT NULL,
    memory     BIGINT NOT NULL,
    disk       BIGINT NOT NULL,
    processes  BIGINT NOT NULL,
    open_files BIGINT NOT NULL,
    image      TEXT   NOT NULL,
    base       TEXT   NOT NULL,
    head       TEXT   NOT NULL,
    head_seq   BIGINT NOT NULL,
    head_at    BIGINT NOT NULL,
    desired    TEXT   NOT NULL,
    failure    TEXT   NOT NULL,
    created    BIGINT NOT NULL,
    updated    BIGINT NOT NULL
);

CREATE TABLE idempotency (
    principal   TEXT   NOT NULL,
    request_key TEXT   NOT NULL,
    tenant      TEXT   NOT NULL,
    region      TEXT   NOT NULL,
    fingerprint BLOB   NOT NULL,
    workspace   TEXT   NOT NULL,
    used        BIGINT NOT NULL,
    PRIMARY KEY (principal, request_key)
);
CREATE INDEX idempotency_used ON idempotency (used);

CREATE TABLE snapshots (
    id            TEXT   NOT NULL PRIMARY KEY,
    tenant        TEXT   NOT NULL,
    region        TEXT   NOT NULL,
    workspace     TEXT   NOT NULL REFERENCES workspaces (id),
    root          TEXT   NOT NULL,
    parent        TEXT   NOT NULL,
    epoch         BIGINT NOT NULL,
    seq           BIGINT NOT NULL,
    consistency   TEXT   NOT NULL,
    stored_bytes  BIGINT NOT NULL,
    written_bytes BIGINT NOT NULL,
    created       BIGINT NOT NULL,
    UNIQUE (workspace, seq)
);

CREATE TABLE instances (
    id           TEXT   NOT NULL PRIMARY KEY,
    tenant       TEXT   NOT NULL,
    region       TEXT   NOT NULL,
    node         TEXT   NOT NULL REFERENCES nodes (id),
    driver       TEXT   NOT NULL,
    tier         TEXT   NOT NULL,
    vcpus        BIGINT NOT NULL,
    memory       BIGINT NOT NULL,
    disk         BIGINT NOT NULL,
    processes    BIGINT NOT NULL,
    open_files   BIGINT NOT NULL,
    subject_kind TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    epoch        BIGINT NOT NULL,
    state        TEXT   NOT NULL,
    desired      TEXT   NOT NULL,
    cause        TEXT   NOT NULL,
    detail       TEXT   NOT NULL,
    phases       TEXT   NOT NULL,
    lease_until  BIGINT NOT NULL,
    created      BIGINT NOT NULL,
    updated      BIGINT NOT NULL,
    UNIQUE (subject_kind, subject, epoch),
    FOREIGN KEY (subject_kind, subject) REFERENCES subjects (kind, id)
);
-- The invariant "at most one live instance of a subject", held by the database
-- whatever the code does.
CREATE UNIQUE INDEX instances_live ON instances (subject_kind, subject) WHERE state <> 'ended' AND state <> 'fenced';
CREATE INDEX instances_charged ON instances (node) WHERE state <> 'ended';
CREATE INDEX instances_tier ON instances (tier) WHERE state <> 'ended' AND state <> 'fenced';
CREATE INDEX instances_lease ON instances (lease_until) WHERE state <> 'ended' AND state <> 'fenced';
CREATE INDEX instances_subject ON instances (subject);

CREATE TABLE flush_intents (
    id       TEXT   NOT NULL PRIMARY KEY,
    tenant   TEXT   NOT NULL,
    region   TEXT   NOT NULL,
    instance TEXT   NOT NULL REFERENCES instances (id),
    subject  TEXT   NOT NULL,
    epoch    BIGINT NOT NULL,
    base     TEXT   NOT NULL,
    seq      BIGINT NOT NULL,
    started  BIGINT NOT NULL,
    expires  BIGINT NOT NULL
);
CREATE INDEX flush_intents_expires ON flush_intents (expires);
CREATE INDEX flush_intents_subject ON flush_intents (subject);

CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant       TEXT   NOT NULL,
    region       TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    actor        TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    subject_kind TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    data         TEXT   NOT NULL
);
CREATE INDEX events_subject ON events (subject, seq);
