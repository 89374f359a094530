package httpapi

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// TestScenario_FitsTheDocument walks through every operation with the real
// client. The server checks each exchange against the document; here is
// checked that the client brings through what the fake said, and that no
// operation was left out.
func TestScenario_FitsTheDocument(t *testing.T) {
	s := newServer(t)
	ctx := t.Context()
	t.Run("workspaces", func(t *testing.T) { workspaceScenario(ctx, t, s.client(t, apitest.UserToken)) })
	t.Run("killed", func(t *testing.T) {
		c := s.client(t, apitest.AdminToken)
		must[api.Workspace](t)(c.CreateWorkspace(ctx, "", api.CreateWorkspaceRequest{Name: "lent"}))
		s.fake.Kill("lent")
		if all := must[[]api.Workspace](t)(c.KilledWorkspaces(ctx)); len(all) != 1 || all[0].Killed == nil {
			t.Errorf("killed: %+v", all)
		}
		if ws := must[api.Workspace](t)(c.RecoverWorkspace(ctx, "lent")); ws.Killed != nil {
			t.Errorf("recovered: %+v", ws)
		}
		_, err := c.RecoverWorkspace(ctx, "lent")
		wantKind(t, err, errs.Conflict)
		check(t, c.DeleteWorkspace(ctx, "lent", true))
	})
	t.Run("gateway", func(t *testing.T) {
		gateScenario(ctx, t, s.client(t, apitest.GatewayToken), s.client(t, apitest.UserToken))
	})
	t.Run("entrance", func(t *testing.T) {
		entranceScenario(ctx, t, s.client(t, apitest.UserToken), s.client(t, apitest.GatewayToken))
	})
	s.fake.Silence("box")
	t.Run("records", func(t *testing.T) { recordScenario(ctx, t, s.client(t, apitest.AdminToken)) })
	t.Run("plane", func(t *testing.T) { planeScenario(ctx, t, s.client(t, apitest.NodeToken)) })
	t.Run("ssh", func(t *testing.T) { sshScenario(ctx, t, s.client(t, apitest.UserToken)) })
	s.raw(t, "GET", "/v1/openapi.yaml", "")

	s.mu.Lock()
	defer s.mu.Unlock()
	for path, item := range s.doc.Paths.Map() {
		for method, op := range item.Operations() {
			well := false
			for status := range s.seen[op.OperationID] {
				well = well || status < 300
			}
			if !well {
				t.Errorf("%s %s (%s) was never answered well: %v", method, path, op.OperationID, s.seen[op.OperationID])
			}
		}
	}
}

func workspaceScenario(ctx context.Context, t *testing.T, c *api.Client) {
	req := api.CreateWorkspaceRequest{Name: "demo", Tier: "small"}
	ws := must[api.Workspace](t)(c.CreateWorkspace(ctx, "key-1", req))
	again := must[api.Workspace](t)(c.CreateWorkspace(ctx, "key-1", req))
	if ws.Name != "demo" || ws.ID != again.ID {
		t.Errorf("created %s %s, then %s", ws.Name, ws.ID, again.ID)
	}
	_, err := c.CreateWorkspace(ctx, "key-1", api.CreateWorkspaceRequest{Name: "other"})
	wantKind(t, err, errs.Conflict)
	_, err = c.CreateWorkspace(ctx, "", api.CreateWorkspaceRequest{Name: "../etc"})
	wantKind(t, err, errs.Invalid)
	_, err = c.Attach(ctx, "demo")
	wantKind(t, err, errs.Conflict)
	if errs.HintOf(err) != "start it with: billet ws start demo" {
		t.Errorf("hint is %q", errs.HintOf(err))
	}

	var phases []string
	check(t, c.Progress(ctx, "demo", api.UntilRunning, func(p api.Progress) error {
		if n := len(p.Workspace.Phases); len(phases) < n {
			phases = append(phases, p.Workspace.Phases[n-1].Name)
		}
		if p.Done != (p.Workspace.State == api.WorkspaceRunning) {
			t.Errorf("done is %t in state %s", p.Done, p.Workspace.State)
		}
		return nil
	}))
	if diff := cmp.Diff([]string{"placed", "mounted", "attached"}, phases); diff != "" {
		t.Errorf("phases: %s", diff)
	}
	a := must[api.Attachment](t)(c.Attach(ctx, "demo"))
	if a.Ticket != "agent" || a.Instance == "" {
		t.Errorf("attachment is %+v", a)
	}

	fork := must[api.Workspace](t)(c.ForkWorkspace(ctx, "key-2", "demo", api.ForkWorkspaceRequest{Name: "twin", Stopped: true}))
	renamed := must[api.Workspace](t)(c.UpdateWorkspace(ctx, string(fork.ID), api.UpdateWorkspaceRequest{Name: "sister"}))
	if renamed.ID != fork.ID || renamed.Name != "sister" {
		t.Errorf("renamed to %s %s", renamed.ID, renamed.Name)
	}
	wantKind(t, c.DeleteWorkspace(ctx, "demo", false), errs.Conflict)
	must[api.Attachment](t)(c.Connect(ctx, "demo", api.ConnectRequest{}, func(api.ConnectPhase) {}))
	portScenario(ctx, t, c)
	must[api.Workspace](t)(c.StopWorkspace(ctx, "demo", api.StopWorkspaceRequest{}))
	check(t, c.Progress(ctx, "demo", api.UntilSettled, func(api.Progress) error { return nil }))
	snaps := must[[]api.Snapshot](t)(c.Snapshots(ctx, "demo"))
	if len(snaps) != 1 || snaps[0].Seq != 1 {
		t.Errorf("snapshots are %+v", snaps)
	}
	must[api.Workspace](t)(c.StartWorkspace(ctx, "demo", api.StartWorkspaceRequest{FromSnapshot: true, Force: true}))
	if got := must[api.Workspace](t)(c.Workspace(ctx, "demo")); got.Epoch != 2 {
		t.Errorf("epoch is %d", got.Epoch)
	}
	if all := must[[]api.Workspace](t)(c.Workspaces(ctx)); len(all) != 2 {
		t.Errorf("got %d workspaces", len(all))
	}

	own := must[[]api.Event](t)(c.Events(ctx, "demo", 0, 100))
	every := must[[]api.Event](t)(c.Events(ctx, "", 0, 100))
	if len(own) == 0 || len(own) >= len(every) {
		t.Errorf("%d events of the workspace, %d of all", len(own), len(every))
	}
	enough := errors.New("enough")
	var followed []api.Event
	err = c.FollowEvents(ctx, "", 1, func(e api.Event) error {
		if followed = append(followed, e); e.Seq == every[len(every)-1].Seq {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("follow events: %v", err)
	}
	if diff := cmp.Diff(every[1:], followed); diff != "" {
		t.Errorf("followed events: %s", diff)
	}
	check(t, c.DeleteWorkspace(ctx, "demo", true))
	_, err = c.Workspace(ctx, "demo")
	wantKind(t, err, errs.NotFound)
	wantKind(t, c.Progress(ctx, "demo", api.UntilRunning, func(api.Progress) error { return nil }), errs.NotFound)
}

func recordScenario(ctx context.Context, t *testing.T, c *api.Client) {
	check(t, c.Health(ctx))
	if info := must[api.Info](t)(c.Info(ctx)); info.APIVersion != api.Version {
		t.Errorf("info is %+v", info)
	}
	if images := must[[]api.Image](t)(c.Images(ctx)); len(images) != 1 || images[0].Generations != nil {
		t.Errorf("images are %+v", images)
	}
	if image := must[api.Image](t)(c.Image(ctx, "base")); len(image.Generations) != 1 {
		t.Errorf("image is %+v", image)
	}
	must[api.Attachment](t)(c.AttachImages(ctx, api.AttachImagesRequest{Name: "mine", Kind: api.ImageStream}))
	check(t, c.DeleteImage(ctx, "base"))
	if images := must[[]api.Image](t)(c.Images(ctx)); images == nil || len(images) != 0 {
		t.Errorf("no image is %#v, want an empty list", images)
	}
	if nodes := must[[]api.Node](t)(c.Nodes(ctx)); nodes[0].Name != "box" {
		t.Errorf("nodes are %+v", nodes)
	}
	_, err := c.RemoveNode(ctx, "box", false)
	wantKind(t, err, errs.Conflict)
	if gone := must[api.RemovedNode](t)(c.RemoveNode(ctx, "box", true)); gone.ID != apitest.Node || gone.Lost == nil {
		t.Errorf("removed node is %+v", gone)
	}
	_, err = c.RemoveNode(ctx, "box", true)
	wantKind(t, err, errs.NotFound)
	if tiers := must[[]api.Tier](t)(c.Tiers(ctx)); tiers[0].Name != "small" || tiers[1].Name != "large" {
		t.Errorf("tiers are %+v", tiers)
	}
	made := must[api.CreatedToken](t)(c.CreateToken(ctx, api.CreateTokenRequest{Name: "laptop", Class: model.ClassAgent, Expires: "1h"}))
	if made.Secret == "" || made.Expires == nil || made.Class != model.ClassAgent {
		t.Errorf("token is %+v", made)
	}
	if tokens := must[[]api.Token](t)(c.Tokens(ctx)); len(tokens) != 1 || tokens[0].Name != "laptop" {
		t.Errorf("tokens are %+v", tokens)
	}
	check(t, c.DeleteToken(ctx, "laptop"))
	wantKind(t, c.DeleteToken(ctx, "laptop"), errs.NotFound)
}

func planeScenario(ctx context.Context, t *testing.T, c *api.Client) {
	node, instance := model.NodeID(apitest.ID("nbox")), model.InstanceID(apitest.ID("n1"))
	req := api.SyncRequest{Node: node, Name: "box", BootID: "b", Version: "v0", Driver: model.DriverGVisor, Have: 0, WaitMilli: 60000}
	res := must[api.SyncResponse](t)(c.Sync(ctx, req))
	if res.Instances == nil || res.Projection.Gateways == nil || res.Projection.DomainKeys == nil {
		t.Errorf("empty lists come as null: %+v", res)
	}
	req.Observed = []api.ObservedInstance{{ID: instance, Epoch: 2, State: model.StateRunning, Base: apitest.Root("x"), Phases: []model.Phase{{Name: "placed"}}}}
	res = must[api.SyncResponse](t)(c.Sync(ctx, req))
	if len(res.Instances) != 1 || res.Instances[0].Desired != model.InstanceFence {
		t.Errorf("answer is %+v", res)
	}
	begin := api.BeginFlushRequest{Node: node, Instance: instance, Epoch: 2, Base: apitest.Root("x")}
	intent := must[api.BeginFlushResponse](t)(c.BeginFlush(ctx, begin))
	begin.Epoch = 1
	_, err := c.BeginFlush(ctx, begin)
	wantKind(t, err, errs.Stale)
	must[api.CommitFlushResponse](t)(c.CommitFlush(ctx, api.CommitFlushRequest{
		Node: node, Instance: instance, Epoch: 2, Intent: intent.Intent, Base: apitest.Root("x"), Root: apitest.Root("y"),
		Seq: intent.Seq, Consistency: "frozen", StoredBytes: 1, WrittenBytes: 2,
	}))
	image := must[api.Image](t)(c.CommitGeneration(ctx, api.CommitGenerationRequest{
		Node: node, Tenant: model.DefaultTenant, Image: "debian", Root: apitest.Root("debian"), Source: "a tar", DiskBytes: 1 << 30,
	}))
	if image.Name != "debian" {
		t.Errorf("image is %+v", image)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%v (hint: %s)", err, errs.HintOf(err))
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, errs.HintOf(err))
	}
}

func wantKind(t *testing.T, err error, kind errs.Kind) {
	t.Helper()
	if !errs.Is(err, kind) {
		t.Errorf("got %v (%s), want %s", err, errs.KindOf(err), kind)
	}
}
