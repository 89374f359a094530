-- A port of a workspace that is public until it expires.
CREATE TABLE shares (
    workspace TEXT   NOT NULL REFERENCES workspaces (id),
    port      BIGINT NOT NULL,
    tenant    TEXT   NOT NULL,
    region    TEXT   NOT NULL,
    principal TEXT   NOT NULL,
    created   BIGINT NOT NULL,
    expires   BIGINT NOT NULL,
    PRIMARY KEY (workspace, port)
);
CREATE INDEX shares_expires ON shares (expires);
