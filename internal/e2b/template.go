package e2b

import (
	"net/http"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// template is an image as the contract shows it.
type template struct {
	TemplateID  string    `json:"templateID"`
	BuildID     string    `json:"buildID"`
	Names       []string  `json:"names"`
	Aliases     []string  `json:"aliases"`
	Public      bool      `json:"public"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskMB      int64     `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
	BuildStatus string    `json:"buildStatus"`
	BuildCount  int       `json:"buildCount"`
	SpawnCount  int64     `json:"spawnCount"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   *struct{} `json:"createdBy"`
	LastSpawned *string   `json:"lastSpawnedAt"`
}

func templateOf(img api.Image, t api.Tier) template {
	return template{
		TemplateID: string(img.ID), BuildID: string(img.Generation), Names: []string{img.Name}, Aliases: []string{img.Name}, Public: true,
		CPUCount: t.Shape.VCPUs, MemoryMB: t.Shape.Memory >> 20, DiskMB: t.Shape.Disk >> 20, EnvdVersion: envdVersion,
		BuildStatus: "ready", BuildCount: 1, CreatedAt: img.Created, UpdatedAt: img.Updated,
	}
}

func (h *Handler) listTemplates(x *exchange) error {
	images, err := h.cfg.Service.Images(x.r.Context(), x.who)
	if err != nil {
		return err
	}
	tier, err := h.tier(x.r.Context(), x.who)
	if err != nil {
		return err
	}
	out := []template{}
	for _, img := range images {
		out = append(out, templateOf(img, tier))
	}
	answer(x.w, http.StatusOK, out)
	return nil
}

func (h *Handler) templateAlias(x *exchange) error {
	img, err := h.cfg.Service.Image(x.r.Context(), x.who, x.r.PathValue("alias"))
	if err != nil {
		return err
	}
	answer(x.w, http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{string(img.ID), true})
	return nil
}

// deleteTemplate lets a snapshot go: the contract deletes both by one route.
// Images are their owners', by billet's own API.
func (h *Handler) deleteTemplate(x *exchange) error {
	err := h.cfg.Lending.ForgetSnapshot(x.r.Context(), x.who, model.SnapshotID(x.id()))
	if errs.Is(err, errs.NotFound) {
		if _, again := h.cfg.Service.Image(x.r.Context(), x.who, x.id()); again == nil {
			return errs.New(errs.Denied, "template %s is an image", x.id()).WithHint("remove it with: billet image rm")
		}
	}
	if err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
