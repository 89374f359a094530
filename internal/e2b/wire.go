package e2b

import (
	"encoding/json"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// envdVersion is the version of the guest's services by which clients decide
// what they may ask: the guest agent has all that it gates.
const envdVersion = "0.6.4"

// clientID is deprecated in the contract, and required.
const clientID = "billet"

// createRequest is the body of a creation. Fields without a meaning here are
// kept as JSON, so that asking for one can be refused.
type createRequest struct {
	TemplateID    string            `json:"templateID"`
	Timeout       *int64            `json:"timeout"` // seconds
	Metadata      map[string]string `json:"metadata"`
	Envs          map[string]string `json:"envVars"`
	Internet      *bool             `json:"allow_internet_access"`
	Network       json.RawMessage   `json:"network"`
	AutoPause     bool              `json:"autoPause"`
	AutoPauseKeep *bool             `json:"autoPauseMemory"`
	AutoResume    *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	MCP     json.RawMessage   `json:"mcp"`
	IAM     json.RawMessage   `json:"iam"`
	Volumes []json.RawMessage `json:"volumeMounts"`
}

// networkWish is what can be told about a policy without a network.
type networkWish struct {
	AllowOut      []string                     `json:"allowOut,omitempty"`
	DenyOut       []string                     `json:"denyOut,omitempty"`
	AllowPublic   *bool                        `json:"allowPublicTraffic,omitempty"`
	EgressProxy   json.RawMessage              `json:"egressProxy,omitempty"`
	HTTPSPorts    []int                        `json:"httpsPorts,omitempty"`
	MaskHost      string                       `json:"maskRequestHost,omitempty"`
	Rules         map[string][]json.RawMessage `json:"rules,omitempty"`
	Internet      *bool                        `json:"allow_internet_access,omitempty"`
	InternetOlder *bool                        `json:"allowInternetAccess,omitempty"`
}

// sandbox is the contract's short form: what a client needs to reach one.
type sandbox struct {
	TemplateID  string  `json:"templateID"`
	SandboxID   string  `json:"sandboxID"`
	ClientID    string  `json:"clientID"`
	Alias       string  `json:"alias,omitempty"`
	EnvdVersion string  `json:"envdVersion"`
	AccessToken string  `json:"envdAccessToken"`
	Domain      *string `json:"domain"`
}

// detail is the contract's long form, also of lists.
type detail struct {
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskMB      int64             `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
	Volumes     []struct{}        `json:"volumeMounts"`

	// Only where one sandbox is asked for.
	AccessToken string          `json:"envdAccessToken,omitempty"`
	Domain      *string         `json:"domain"`
	Internet    *bool           `json:"allowInternetAccess,omitempty"`
	Network     json.RawMessage `json:"network,omitempty"`
	Lifecycle   *lifecycle      `json:"lifecycle,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"` // pause or kill
	AutoResume bool   `json:"autoResume"`
}

// The states of the contract.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// stateOf: what is wanted running, runs or is on its way; everything else waits
// for its client, also one whose guest ended by itself.
func stateOf(v api.Workspace) string {
	if v.Desired == model.DesiredRunning && v.State != api.WorkspaceFailed {
		return stateRunning
	}
	return statePaused
}

// short is the short form of a sandbox.
func (h *Handler) short(o api.OnTerms) (sandbox, error) {
	token, err := h.cfg.Lending.DoorToken(o.Workspace.ID)
	return sandbox{
		TemplateID: o.Terms.Template, SandboxID: string(o.Workspace.ID), ClientID: clientID, EnvdVersion: envdVersion, AccessToken: token,
	}, err
}

// listed is the form of a sandbox in lists.
func listed(o api.OnTerms) detail {
	d := detail{
		TemplateID: o.Terms.Template, SandboxID: string(o.Workspace.ID), ClientID: clientID,
		StartedAt: o.Terms.Began, EndAt: o.Terms.Deadline, State: stateOf(o.Workspace),
		CPUCount: o.Workspace.Shape.VCPUs, MemoryMB: o.Workspace.Shape.Memory >> 20, DiskMB: o.Workspace.Shape.Disk >> 20,
		EnvdVersion: envdVersion, Metadata: o.Terms.Metadata, Volumes: []struct{}{},
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// full is the long form of one sandbox.
func (h *Handler) full(o api.OnTerms) (detail, error) {
	d := listed(o)
	token, err := h.cfg.Lending.DoorToken(o.Workspace.ID)
	if err != nil {
		return d, err
	}
	none := false // whatever was asked for: there is no network
	d.AccessToken, d.Internet = token, &none
	if o.Terms.Network != "" {
		d.Network = json.RawMessage(o.Terms.Network)
	}
	d.Lifecycle = &lifecycle{OnTimeout: "kill", AutoResume: o.Terms.AutoResume}
	if o.Terms.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d, nil
}
