-- Who may enter by SSH: the public keys of principals, in one line each. A key
-- is one principal's, whose name for it is unique.
CREATE TABLE ssh_keys (
    id          TEXT   NOT NULL PRIMARY KEY,
    tenant      TEXT   NOT NULL,
    region      TEXT   NOT NULL,
    principal   TEXT   NOT NULL REFERENCES principals (id),
    name        TEXT   NOT NULL,
    fingerprint TEXT   NOT NULL UNIQUE,
    public_key  TEXT   NOT NULL,
    created     BIGINT NOT NULL,
    UNIQUE (principal, name)
);
