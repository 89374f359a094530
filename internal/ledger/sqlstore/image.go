package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const (
	generationColumns = "g.id, g.tenant, g.region, g.image, g.root, g.source, g.disk_bytes, g.used_bytes, g.stored_bytes, g.created"
	selectImages      = "SELECT i.id, i.tenant, i.region, i.owner, i.name, i.head, i.created, i.updated, " + generationColumns +
		" FROM images i JOIN generations g ON g.id = i.head"
	whereImage = " WHERE i.tenant = ? AND (i.id = ? OR i.name = ?) ORDER BY (i.id = ?) DESC"
)

func generationDest(g *model.ImageGeneration) []any {
	return []any{&g.ID, &g.Tenant, &g.Region, &g.Image, &g.Root, &g.Source, &g.DiskBytes, &g.UsedBytes, &g.StoredBytes, at{&g.Created}}
}

func scanGeneration(r row) (g model.ImageGeneration, err error) {
	err = r.Scan(generationDest(&g)...)
	return g, err
}

func scanImage(r row) (rec ledger.ImageRecord, err error) {
	i := &rec.Image
	err = r.Scan(append([]any{&i.ID, &i.Tenant, &i.Region, &i.Owner, &i.Name, &i.Head, at{&i.Created}, at{&i.Updated}}, generationDest(&rec.Head)...)...)
	return rec, err
}

func aboutImage(i model.Image) about { return about{i.Tenant, i.Region, "image", string(i.ID)} }

// CommitGeneration implements ledger.Ledger.
func (s *Store) CommitGeneration(ctx context.Context, m ledger.Meta, img model.Image, g model.ImageGeneration) (rec ledger.ImageRecord, err error) {
	err = s.write(ctx, m, fmt.Sprintf("commit generation of image %q", img.Name), func(t *tx) error {
		var found bool
		if rec, found, err = one(t, scanImage, selectImages+" WHERE i.name = ?", img.Name); err != nil {
			return err
		}
		if found && img.Tenant != rec.Image.Tenant {
			return errs.New(errs.Conflict, "the name is taken").WithHint("choose another name")
		}
		if found && img.Owner != "" && img.Owner != rec.Image.Owner {
			return errs.New(errs.Denied, "another principal made the image").WithHint("choose another name, or ask an admin")
		}
		if found && rec.Head.Root == g.Root {
			return nil
		}
		if !found {
			rec.Image, rec.Image.Created = img, t.meta.Now
		}
		g.Image, g.Created = rec.Image.ID, t.meta.Now
		rec.Head, rec.Image.Head, rec.Image.Updated = g, g.ID, t.meta.Now
		if err := t.putImage(rec.Image, found); err != nil {
			return err
		}
		if err := t.putGeneration(g); err != nil {
			return err
		}
		return t.emit(ledger.EventImageCommitted, aboutImage(rec.Image),
			map[string]string{"name": img.Name, "generation": string(g.ID), "root": string(g.Root), "source": g.Source})
	})
	if err != nil {
		return ledger.ImageRecord{}, err
	}
	return rec, nil
}

func (t *tx) putImage(i model.Image, exists bool) error {
	if exists {
		return t.exec("UPDATE images SET head = ?, updated = ? WHERE id = ?", i.Head, i.Updated, i.ID)
	}
	return t.exec("INSERT INTO images (id, tenant, region, owner, name, head, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		i.ID, i.Tenant, i.Region, i.Owner, i.Name, i.Head, i.Created, i.Updated)
}

func (t *tx) putGeneration(g model.ImageGeneration) error {
	return t.exec(`INSERT INTO generations (id, tenant, region, image, number, root, source, disk_bytes, used_bytes, stored_bytes, created)
		VALUES (?, ?, ?, ?, (SELECT COUNT(*) + 1 FROM generations WHERE image = ?), ?, ?, ?, ?, ?, ?)`,
		g.ID, g.Tenant, g.Region, g.Image, g.Image, g.Root, g.Source, g.DiskBytes, g.UsedBytes, g.StoredBytes, g.Created)
}

// Images implements ledger.Ledger.
func (s *Store) Images(ctx context.Context, tenant model.TenantID) (images []ledger.ImageRecord, err error) {
	where, args := ofTenant("i.tenant", tenant)
	err = s.read(ctx, "list images", func(t *tx) error {
		images, err = all(t, scanImage, selectImages+" WHERE "+where+" ORDER BY i.name", args...)
		return err
	})
	return images, err
}

// image finds by id or name.
func (t *tx) image(tenant model.TenantID, ref string) (ledger.ImageRecord, error) {
	rec, found, err := one(t, scanImage, selectImages+whereImage, tenant, ref, ref, ref)
	if err == nil && !found {
		err = errs.New(errs.NotFound, "there is no image %q", ref).WithHint("`billet image ls` lists them; `billet image import` makes one")
	}
	return rec, err
}

// Image implements ledger.Ledger.
func (s *Store) Image(ctx context.Context, tenant model.TenantID, ref string) (rec ledger.ImageRecord, generations []model.ImageGeneration, err error) {
	err = s.read(ctx, "find image", func(t *tx) error {
		if rec, err = t.image(tenant, ref); err != nil {
			return err
		}
		generations, err = all(t, scanGeneration, "SELECT "+generationColumns+" FROM generations g WHERE g.image = ? ORDER BY g.number DESC", rec.Image.ID)
		return err
	})
	if err != nil {
		return ledger.ImageRecord{}, nil, err
	}
	return rec, generations, nil
}

// DeleteImage implements ledger.Ledger.
func (s *Store) DeleteImage(ctx context.Context, m ledger.Meta, tenant model.TenantID, ref string) error {
	return s.write(ctx, m, fmt.Sprintf("delete image %q", ref), func(t *tx) error {
		rec, err := t.image(tenant, ref)
		if err != nil {
			return err
		}
		if err := t.exec("DELETE FROM generations WHERE image = ?", rec.Image.ID); err != nil {
			return err
		}
		if err := t.exec("DELETE FROM images WHERE id = ?", rec.Image.ID); err != nil {
			return err
		}
		return t.emit(ledger.EventImageDeleted, aboutImage(rec.Image), map[string]string{"name": rec.Image.Name})
	})
}
