package httpapi

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/control"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
)

// TestReal_FitsTheDocument walks one workspace through its life on the real
// control plane, so that not only the fake fits the document.
func TestReal_FitsTheDocument(t *testing.T) {
	ctx, dir, log := t.Context(), t.TempDir(), slog.New(slog.DiscardHandler)
	ledger, err := sqlite.Open(filepath.Join(dir, "ledger.db"), log)
	check(t, err)
	t.Cleanup(func() { _ = ledger.Close() })
	secrets, err := control.OpenSecrets(filepath.Join(dir, "secrets"))
	check(t, err)
	real, err := control.New(ctx, control.Config{
		Ledger: ledger, Secrets: secrets, Tiers: config.Default().Tiers, Gateways: []api.Gateway{{Name: "local", URL: "http://127.0.0.1:7481"}},
		FlushEvery: time.Minute, StopGrace: time.Second, Clock: clock.Real{}, Log: log, Version: "v0",
	})
	check(t, err)
	admin, err := real.Local(ctx)
	check(t, err)
	s := newServer(t, func(c *Config) { c.Service, c.Plane, c.SSH, c.Entrance, c.Local = real, real, real, real, &admin })

	c := s.client(t, "")
	made := must[api.CreatedToken](t)(c.CreateToken(ctx, api.CreateTokenRequest{Name: "box", Role: model.RoleNode, Expires: "1h"}))
	node := s.client(t, made.Secret)
	sync := api.SyncRequest{
		Node: model.NodeID(model.NewID()), Name: "box", BootID: "b", Version: "v0", Driver: model.DriverGVisor,
		Capacity: model.Capacity{VCPUs: 8, Memory: 32 << 30, Disk: 500 << 30},
	}
	must[api.SyncResponse](t)(node.Sync(ctx, sync))
	must[api.Image](t)(node.CommitGeneration(ctx, api.CommitGenerationRequest{
		Node: sync.Node, Tenant: model.DefaultTenant, Image: "base", Root: apitest.Root("base"), Source: "a test", DiskBytes: 1 << 30,
	}))
	must[api.Image](t)(c.Image(ctx, "base"))

	ws := must[api.Workspace](t)(c.CreateWorkspace(ctx, "key", api.CreateWorkspaceRequest{Name: "demo"}))
	res := must[api.SyncResponse](t)(node.Sync(ctx, sync))
	if len(res.Instances) != 1 || res.Instances[0].Desired != model.InstanceRun {
		t.Fatalf("the node is told %+v", res.Instances)
	}
	in := res.Instances[0]
	stray := api.ObservedInstance{ID: model.InstanceID(model.NewID()), Epoch: 1, State: model.StateRunning}
	see := func(state model.InstanceState, cause model.Cause) api.SyncResponse {
		sync.Observed = []api.ObservedInstance{{
			ID: in.ID, Epoch: in.Epoch, State: state, Cause: cause, UnsavedBytes: 4096, DurableAge: time.Second,
			Phases: []model.Phase{{Name: "accepted", At: clock.Real{}.Now()}},
		}, stray}
		return must[api.SyncResponse](t)(node.Sync(ctx, sync))
	}
	see(model.StateRunning, model.CauseNone)
	check(t, c.Progress(ctx, "demo", api.UntilRunning, func(api.Progress) error { return nil }))
	must[api.Attachment](t)(c.Attach(ctx, "demo"))
	wantKind(t, c.DeleteWorkspace(ctx, "demo", false), errs.Conflict)

	must[api.Workspace](t)(c.StopWorkspace(ctx, "demo", api.StopWorkspaceRequest{}))
	see(model.StateStopping, model.CauseNone)
	flush := must[api.BeginFlushResponse](t)(node.BeginFlush(ctx, api.BeginFlushRequest{Node: sync.Node, Instance: in.ID, Epoch: in.Epoch, Base: in.Root}))
	must[api.CommitFlushResponse](t)(node.CommitFlush(ctx, api.CommitFlushRequest{
		Node: sync.Node, Instance: in.ID, Epoch: in.Epoch, Intent: flush.Intent, Base: in.Root, Root: apitest.Root("saved"), Seq: flush.Seq,
		Consistency: "frozen", StoredBytes: 100, WrittenBytes: 4096,
	}))
	see(model.StateEnded, model.CauseStopped)
	check(t, c.Progress(ctx, "demo", api.UntilStopped, func(api.Progress) error { return nil }))
	wantKind(t, attach(c.Attach(ctx, "demo")), errs.Conflict)

	if snaps := must[[]api.Snapshot](t)(c.Snapshots(ctx, string(ws.ID))); len(snaps) != 1 {
		t.Errorf("snapshots are %+v", snaps)
	}
	must[api.Workspace](t)(c.ForkWorkspace(ctx, "", "demo", api.ForkWorkspaceRequest{Name: "twin", Stopped: true}))
	must[api.Workspace](t)(c.UpdateWorkspace(ctx, "twin", api.UpdateWorkspaceRequest{Name: "sister"}))
	must[api.Workspace](t)(c.StartWorkspace(ctx, "demo", api.StartWorkspaceRequest{}))
	must[[]api.Workspace](t)(c.Workspaces(ctx))
	must[[]api.Event](t)(c.Events(ctx, "demo", 0, 100))
	must[[]api.Node](t)(c.Nodes(ctx))
	must[[]api.Tier](t)(c.Tiers(ctx))
	must[[]api.Token](t)(c.Tokens(ctx))
	must[api.Info](t)(c.Info(ctx))
	must[api.Attachment](t)(c.AttachImages(ctx, api.AttachImagesRequest{Name: "mine", Kind: api.ImageStream}))
	check(t, c.DeleteToken(ctx, "box"))
	check(t, node.Health(ctx)) // asks for no token
	_, err = node.Sync(ctx, sync)
	wantKind(t, err, errs.Unauthenticated)
}

func attach(_ api.Attachment, err error) error { return err }
