-- What a client lent a workspace under. There is no reference to the workspace:
-- the terms are recorded first, so that no workspace is without its deadline.
-- killed is no time (the default of 0003) while it was not ended.
CREATE TABLE terms (
    workspace   TEXT    NOT NULL PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    region      TEXT    NOT NULL,
    template    TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    envs        TEXT    NOT NULL,
    began       BIGINT  NOT NULL,
    deadline    BIGINT  NOT NULL,
    auto_pause  BOOLEAN NOT NULL,
    pause_cold  BOOLEAN NOT NULL,
    auto_resume BOOLEAN NOT NULL,
    network     TEXT    NOT NULL,
    killed      BIGINT  NOT NULL,
    created     BIGINT  NOT NULL
);

-- A durable state that outlives its workspace. detail is the rest, as JSON.
CREATE TABLE kept_snapshots (
    id        TEXT   NOT NULL PRIMARY KEY,
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    name      TEXT   NOT NULL,
    workspace TEXT   NOT NULL,
    root      TEXT   NOT NULL,
    detail    TEXT   NOT NULL,
    created   BIGINT NOT NULL
);
