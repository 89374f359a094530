-- Who may replace and remove an image: the user who made it; '' is an admin's.
ALTER TABLE images ADD COLUMN owner TEXT NOT NULL DEFAULT '';

-- When a node was removed; 0: it is there. Its row stays, because the history
-- of instances refers to it.
ALTER TABLE nodes ADD COLUMN removed BIGINT NOT NULL DEFAULT 0;
