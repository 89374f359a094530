package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// Workspace is a workspace as an agent sees it.
type Workspace struct {
	Name   string `json:"name"`
	State  string `json:"state" jsonschema:"running, starting, stopped, stopping, failed, unproven or deleting"`
	Detail string `json:"detail,omitempty" jsonschema:"why it failed or what it waits for"`
	Tier   string `json:"tier"`
	Image  string `json:"image"`
	Resume string `json:"resume,omitempty" jsonschema:"how a stopped one comes back: memory or cold"`
}

func workspace(ws api.Workspace) Workspace {
	out := Workspace{Name: ws.Name, State: string(ws.State), Detail: ws.Detail, Tier: ws.Tier, Image: ws.Image}
	if ws.NextResume != nil && ws.State == api.WorkspaceStopped {
		out.Resume = string(ws.NextResume.How)
	}
	if ws.Failure != "" {
		out.Detail = string(ws.Failure) + ": " + ws.Detail
	}
	return out
}

type createArgs struct {
	Name  string `json:"name,omitempty" jsonschema:"a-z, 0-9 and -; without it one is generated"`
	Tier  string `json:"tier,omitempty" jsonschema:"its shape; without it the first one configured"`
	Image string `json:"image,omitempty" jsonschema:"what its disk begins with; without it the tier's"`
}

func (s *server) create(ctx context.Context, _ *sdk.CallToolRequest, in createArgs) (*sdk.CallToolResult, Workspace, error) {
	ws, err := s.client.CreateWorkspace(ctx, "", api.CreateWorkspaceRequest{Name: in.Name, Tier: in.Tier, Image: in.Image})
	if err != nil {
		return nil, Workspace{}, told(err)
	}
	return s.settled(ctx, ws.Name, api.UntilRunning)
}

type list struct {
	Workspaces []Workspace `json:"workspaces"`
}

func (s *server) list(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, list, error) {
	all, err := s.client.Workspaces(ctx)
	out := list{Workspaces: []Workspace{}}
	for _, ws := range all {
		out.Workspaces = append(out.Workspaces, workspace(ws))
	}
	return nil, out, told(err)
}

type nameArgs struct {
	Workspace string `json:"workspace" jsonschema:"its name"`
}

func (s *server) hibernate(ctx context.Context, _ *sdk.CallToolRequest, in nameArgs) (*sdk.CallToolResult, Workspace, error) {
	if _, err := s.client.StopWorkspace(ctx, in.Workspace, api.StopWorkspaceRequest{}); err != nil {
		return nil, Workspace{}, told(err)
	}
	return s.settled(ctx, in.Workspace, api.UntilStopped)
}

type forkArgs struct {
	Workspace string `json:"workspace" jsonschema:"the one to copy"`
	Name      string `json:"name,omitempty" jsonschema:"of the copy; without it one is generated"`
}

func (s *server) fork(ctx context.Context, _ *sdk.CallToolRequest, in forkArgs) (*sdk.CallToolResult, Workspace, error) {
	ws, err := s.client.ForkWorkspace(ctx, "", in.Workspace, api.ForkWorkspaceRequest{Name: in.Name})
	if err != nil {
		return nil, Workspace{}, told(err)
	}
	return s.settled(ctx, ws.Name, api.UntilRunning)
}

// settled waits and returns what became of a workspace.
func (s *server) settled(ctx context.Context, name string, until api.Until) (*sdk.CallToolResult, Workspace, error) {
	var last api.Workspace
	err := s.client.Progress(ctx, name, until, func(p api.Progress) error { last = p.Workspace; return nil })
	return nil, workspace(last), told(err)
}

// told joins an error's hint to its words: an agent acts on what it reads.
func told(err error) error {
	if hint := errs.HintOf(err); hint != "" {
		return errs.New(errs.KindOf(err), "%v (%s)", err, hint)
	}
	return err
}
