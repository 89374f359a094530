package sqlstore

import (
	"strings"
	"testing"
)

// TestPlans_DoNotScanHistory asks SQLite how it would run what runs all the
// time. Ended instances, events and snapshots only grow, so each of these has
// to go through an index.
func TestPlans_DoNotScanHistory(t *testing.T) {
	s := bare(t)
	if err := s.migrate(t.Context(), embedded()); err != nil {
		t.Fatal(err)
	}
	for query, index := range map[string]string{
		selectHeadroom: "instances_charged",
		selectInstances + " WHERE subject_kind = ? AND subject = ? AND tenant = ? AND " + isLive: "instances_live",
		selectInstances + " WHERE node = ? AND " + isLive + " ORDER BY created, id":              "instances_charged",
		selectInstances + newestInstance:                                                         "autoindex_instances",
		selectInstances + " WHERE subject = ? AND " + isLive + " ORDER BY created, id":           "instances_subject",
		selectInstances + " WHERE " + isLive + " ORDER BY created, id":                           "instances_l",
		selectInstances + " WHERE " + isLive + " AND lease_until < ?":                            "instances_lease",
		"SELECT COUNT(*) FROM instances WHERE tier = ? AND " + isLive:                            "instances_tier",
		"SELECT tier, COUNT(*) FROM instances WHERE " + isLive + " GROUP BY tier":                "instances_tier",
		"SELECT seq FROM events WHERE seq > ? AND subject = ? ORDER BY seq LIMIT ?":              "events_subject",
		selectSnapshots + " ORDER BY seq DESC":                                                   "snapshots",
		selectWorkspaces + whereWorkspaceRef:                                                     "MULTI-INDEX",
		selectImages + whereImage:                                                                "MULTI-INDEX",
		"SELECT seq FROM events WHERE seq > ? AND tenant = ? ORDER BY seq LIMIT ?":               "PRIMARY KEY",
		"SELECT " + intentColumns + " FROM flush_intents WHERE expires < ? ORDER BY expires, id": "flush_intents_expires",
	} {
		rows, err := s.reader.Query("EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(plan, "\n\t")
		if !strings.Contains(all, index) {
			t.Errorf("%s\ndoes not use %s:\n\t%s", query, index, all)
		}
	}
}
