package sqlstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const selectNodes = "SELECT id, tenant, region, name, driver, boot_id, version, vcpus, memory, disk, last_seen, created FROM nodes WHERE removed = 0"

func scanNode(r row) (n model.Node, err error) {
	err = r.Scan(&n.ID, &n.Tenant, &n.Region, &n.Name, &n.Driver, &n.BootID, &n.Version,
		&n.Capacity.VCPUs, &n.Capacity.Memory, &n.Capacity.Disk, at{&n.LastSeen}, at{&n.Created})
	return n, err
}

// SeeNode implements ledger.Ledger.
func (s *Store) SeeNode(ctx context.Context, m ledger.Meta, n model.Node) error {
	return s.write(ctx, m, "see node "+string(n.ID), func(t *tx) error {
		old, found, err := one(t, scanNode, selectNodes+" AND id = ?", n.ID)
		if err != nil {
			return err
		}
		if err := t.exec(`INSERT INTO nodes (id, tenant, region, name, driver, boot_id, version, vcpus, memory, disk, last_seen, created)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, region = excluded.region, name = excluded.name,
				driver = excluded.driver, boot_id = excluded.boot_id, version = excluded.version, vcpus = excluded.vcpus,
				memory = excluded.memory, disk = excluded.disk, last_seen = excluded.last_seen,
				created = CASE WHEN nodes.removed = 0 THEN nodes.created ELSE excluded.created END, removed = 0`,
			n.ID, n.Tenant, n.Region, n.Name, n.Driver, n.BootID, n.Version,
			n.Capacity.VCPUs, n.Capacity.Memory, n.Capacity.Disk, t.meta.Now, t.meta.Now); err != nil {
			return err
		}
		kind := ledger.EventNodeJoined
		if found {
			if sameNode(old, n) {
				return nil
			}
			kind = ledger.EventNodeChanged
		}
		return t.emit(kind, about{n.Tenant, n.Region, "node", string(n.ID)}, map[string]string{
			"name": n.Name, "driver": string(n.Driver), "boot_id": n.BootID, "version": n.Version,
			"vcpus": strconv.Itoa(n.Capacity.VCPUs), "memory": fmt.Sprint(n.Capacity.Memory), "disk": fmt.Sprint(n.Capacity.Disk),
		})
	})
}

// sameNode reports whether only the time of the visit differs.
func sameNode(old, n model.Node) bool {
	old.LastSeen, old.Created = n.LastSeen, n.Created
	n.Name, n.BootID, n.Version = text(n.Name), text(n.BootID), text(n.Version)
	return old == n
}

// Nodes implements ledger.Ledger.
func (s *Store) Nodes(ctx context.Context) (nodes []model.Node, err error) {
	err = s.read(ctx, "list nodes", func(t *tx) error {
		nodes, err = all(t, scanNode, selectNodes+" ORDER BY name, id")
		return err
	})
	return nodes, err
}

const selectHeadroom = `SELECT n.vcpus, n.memory, n.disk, COALESCE(i.vcpus, 0), COALESCE(i.memory, 0), COALESCE(i.disk, 0)
	FROM nodes n LEFT JOIN (
		SELECT CAST(SUM(vcpus) AS BIGINT) AS vcpus, CAST(SUM(memory) AS BIGINT) AS memory, CAST(SUM(disk) AS BIGINT) AS disk
		FROM instances WHERE node = ? AND ` + isCharged + `
	) i ON true
	WHERE n.id = ? AND n.removed = 0`

// headroom returns what of a node's capacity is not charged. Everything that
// has not ended is charged: a fenced instance is overtaken but not proved gone.
func (t *tx) headroom(id model.NodeID) (free model.Capacity, err error) {
	free, found, err := one(t, func(r row) (free model.Capacity, err error) {
		var used model.Capacity
		err = r.Scan(&free.VCPUs, &free.Memory, &free.Disk, &used.VCPUs, &used.Memory, &used.Disk)
		return model.Capacity{VCPUs: free.VCPUs - used.VCPUs, Memory: free.Memory - used.Memory, Disk: free.Disk - used.Disk}, err
	}, selectHeadroom, id, id)
	if err == nil && !found {
		err = errs.New(errs.NotFound, "there is no node %s", id)
	}
	return free, err
}
