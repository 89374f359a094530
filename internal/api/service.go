package api

import (
	"context"

	"github.com/billethq/billet/internal/model"
)

// Service is what the control plane does for people and programs: the HTTP
// handlers call it with the caller's principal, the client speaks it over HTTP.
// A ref is a name or an id.
type Service interface {
	Ports
	Info(ctx context.Context) (Info, error)

	// CreateWorkspace is idempotent by key for a day: the same key and body
	// return the first result, the same key with another body is
	// errs.Conflict. An empty key is never deduplicated.
	CreateWorkspace(ctx context.Context, who model.Principal, key string, req CreateWorkspaceRequest) (Workspace, error)
	Workspaces(ctx context.Context, who model.Principal) ([]Workspace, error)
	// KilledWorkspaces are those that were ended for the clients they were lent
	// to, and that RecoverWorkspace still makes ordinary, stopped ones.
	KilledWorkspaces(ctx context.Context, who model.Principal) ([]Workspace, error)
	RecoverWorkspace(ctx context.Context, who model.Principal, ref string) (Workspace, error)
	Workspace(ctx context.Context, who model.Principal, ref string) (Workspace, error)
	UpdateWorkspace(ctx context.Context, who model.Principal, ref string, req UpdateWorkspaceRequest) (Workspace, error)
	StartWorkspace(ctx context.Context, who model.Principal, ref string, req StartWorkspaceRequest) (Workspace, error)
	StopWorkspace(ctx context.Context, who model.Principal, ref string, req StopWorkspaceRequest) (Workspace, error)
	ForkWorkspace(ctx context.Context, who model.Principal, key, ref string, req ForkWorkspaceRequest) (Workspace, error)
	// DeleteWorkspace refuses, without force, while state is unsaved.
	DeleteWorkspace(ctx context.Context, who model.Principal, ref string, force bool) error
	Snapshots(ctx context.Context, who model.Principal, ref string) ([]Snapshot, error)
	// Connect is Attach for a workspace that may be asleep: a hibernated one is
	// resumed, and tell is called with each phase as it is reached, until the
	// guest can be entered or the deadline has passed (errs.Unavailable with the
	// cause; the workspace can still be connected to). One that is stopped or
	// has failed is errs.Conflict.
	Connect(ctx context.Context, who model.Principal, ref string, req ConnectRequest, tell func(ConnectPhase) error) (Attachment, error)
	// Attach opens a road to the agent of a running workspace.
	Attach(ctx context.Context, who model.Principal, ref string) (Attachment, error)
	// Watch calls fn with the present state and then after each change, until
	// fn returns an error or false, or ctx ends.
	Watch(ctx context.Context, who model.Principal, ref string, fn func(Workspace) (more bool, err error)) error

	// AttachImages opens a road to a node that makes that one image.
	// errs.Denied when who may not: a user imports under new names and those
	// of its own images, and never under one that a tier begins with.
	AttachImages(ctx context.Context, who model.Principal, req AttachImagesRequest) (Attachment, error)
	Images(ctx context.Context, who model.Principal) ([]Image, error)
	Image(ctx context.Context, who model.Principal, ref string) (Image, error)
	// DeleteImage: errs.Denied as AttachImages.
	DeleteImage(ctx context.Context, who model.Principal, ref string) error

	Nodes(ctx context.Context, who model.Principal) ([]Node, error)
	// RemoveNode forgets a node that is gone for good; of several with one name
	// it means the one that is silent. errs.Conflict while the node is heard,
	// and, without force, while an instance on it is not proved gone. Force is
	// the admin's word that the host is: its instances end, their workspaces
	// keep their newest snapshots.
	RemoveNode(ctx context.Context, who model.Principal, ref string, force bool) (RemovedNode, error)
	Tiers(ctx context.Context, who model.Principal) ([]Tier, error)

	CreateToken(ctx context.Context, who model.Principal, req CreateTokenRequest) (CreatedToken, error)
	Tokens(ctx context.Context, who model.Principal) ([]Token, error)
	DeleteToken(ctx context.Context, who model.Principal, ref string) error

	// SSH describes the way in by SSH. AddSSHKey adds a key of the caller's;
	// errs.Conflict when anybody has it. SSHKeys lists the caller's, and
	// everybody's for an admin. SignSSH makes a certificate for the caller,
	// which nothing revokes.
	SSH(ctx context.Context, who model.Principal) (SSHInfo, error)
	AddSSHKey(ctx context.Context, who model.Principal, req AddSSHKeyRequest) (SSHKey, error)
	SSHKeys(ctx context.Context, who model.Principal) ([]SSHKey, error)
	RemoveSSHKey(ctx context.Context, who model.Principal, ref string) error
	SignSSH(ctx context.Context, who model.Principal, req SSHCertificateRequest) (SSHCertificate, error)

	// Events returns at most limit events after seq, of one workspace when ref
	// is not empty, oldest first.
	Events(ctx context.Context, who model.Principal, ref string, after int64, limit int) ([]Event, error)
	// WaitEvents blocks until an event of the caller's tenant after seq may
	// exist, or ctx ends.
	WaitEvents(ctx context.Context, who model.Principal, after int64) error

	// Authenticate finds the principal of a bearer token.
	Authenticate(ctx context.Context, secret string) (model.Principal, error)
}
