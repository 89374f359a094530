package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/billethq/billet/internal/errs"
)

// Headers of the API.
const (
	VersionHeader     = "Billet-Api-Version"
	IdempotencyHeader = "Idempotency-Key"
	RequestIDHeader   = "Billet-Request-Id"
)

const (
	// callTimeout bounds one call that is not held open: the control plane
	// answers from its records.
	callTimeout = 30 * time.Second
	// forkTimeout is longer than a server saves a running workspace for.
	forkTimeout = 11 * time.Minute
	// maxAnswerBytes bounds one answer; a list of 10,000 workspaces is 10 MiB.
	maxAnswerBytes = 64 << 20
)

// ClientConfig says where the API is and who calls.
type ClientConfig struct {
	// Endpoint of the server: see ParseEndpoint.
	Endpoint Endpoint
	// Token is the bearer token; on the Unix socket it may be empty.
	Token Secret
}

// Client speaks the API over HTTP. It implements Plane; its other methods are
// those of Service, without the principal, which the server finds by the
// token. It is safe for concurrent use. Errors have the server's kinds and
// hints; a server that is not there is errs.Unavailable. Nothing is retried
// but the streams.
type Client struct {
	endpoint Endpoint
	token    Secret
	http     *http.Client
}

var _ Plane = (*Client)(nil)

// NewClient returns a client; it does not connect.
func NewClient(c ClientConfig) (*Client, error) {
	switch c.Endpoint.Network {
	case "unix":
	case "tcp":
		if err := CheckLoopback(c.Endpoint.Address); err != nil {
			return nil, err
		}
	default:
		return nil, errs.New(errs.Invalid, "endpoint has no network")
	}
	return &Client{endpoint: c.Endpoint, token: c.Token, http: &http.Client{
		Transport: &http.Transport{
			// A proxy from the environment must never see the token.
			Proxy: nil,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return c.Endpoint.Dial(ctx)
			},
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     90 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Health asks whether a server answers at all; it needs no token.
func (c *Client) Health(ctx context.Context) error {
	_, err := call[Health](ctx, c, http.MethodGet, "/v1/health", nil)
	return err
}

// Info describes the deployment.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, http.MethodGet, "/v1/info", nil)
}

// CreateWorkspace makes a workspace; key deduplicates repetitions.
func (c *Client) CreateWorkspace(ctx context.Context, key string, req CreateWorkspaceRequest) (Workspace, error) {
	var out Workspace
	err := c.do(ctx, http.MethodPost, "/v1/workspaces", keyHeader(key), req, &out)
	return out, err
}

// Workspaces lists.
func (c *Client) Workspaces(ctx context.Context) ([]Workspace, error) {
	return list[Workspace](ctx, c, "/v1/workspaces")
}

// KilledWorkspaces lists what was ended for clients and can be recovered.
func (c *Client) KilledWorkspaces(ctx context.Context) ([]Workspace, error) {
	return list[Workspace](ctx, c, "/v1/killed")
}

// RecoverWorkspace makes one of them an ordinary, stopped workspace.
func (c *Client) RecoverWorkspace(ctx context.Context, ref string) (Workspace, error) {
	return call[Workspace](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/recover", nil)
}

// Workspace finds by name or id.
func (c *Client) Workspace(ctx context.Context, ref string) (Workspace, error) {
	return call[Workspace](ctx, c, http.MethodGet, "/v1/workspaces/"+url.PathEscape(ref), nil)
}

// UpdateWorkspace renames.
func (c *Client) UpdateWorkspace(ctx context.Context, ref string, req UpdateWorkspaceRequest) (Workspace, error) {
	return call[Workspace](ctx, c, http.MethodPatch, "/v1/workspaces/"+url.PathEscape(ref), req)
}

// StartWorkspace asks for it to run.
func (c *Client) StartWorkspace(ctx context.Context, ref string, req StartWorkspaceRequest) (Workspace, error) {
	return call[Workspace](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/start", req)
}

// StopWorkspace asks for it to be saved and stopped.
func (c *Client) StopWorkspace(ctx context.Context, ref string, req StopWorkspaceRequest) (Workspace, error) {
	return call[Workspace](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/stop", req)
}

// ForkWorkspace makes a new workspace from one; key deduplicates repetitions.
// It waits while one that runs is saved.
func (c *Client) ForkWorkspace(ctx context.Context, key, ref string, req ForkWorkspaceRequest) (Workspace, error) {
	var out Workspace
	ctx, cancel := context.WithTimeout(ctx, forkTimeout)
	defer cancel()
	err := c.send(ctx, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/fork", keyHeader(key), req, &out)
	return out, err
}

// DeleteWorkspace deletes; without force it refuses while state is unsaved.
func (c *Client) DeleteWorkspace(ctx context.Context, ref string, force bool) error {
	path := "/v1/workspaces/" + url.PathEscape(ref)
	if force {
		path += "?force=true"
	}
	return c.do(ctx, http.MethodDelete, path, nil, nil, nil)
}

// Snapshots of a workspace, newest first.
func (c *Client) Snapshots(ctx context.Context, ref string) ([]Snapshot, error) {
	return list[Snapshot](ctx, c, "/v1/workspaces/"+url.PathEscape(ref)+"/snapshots")
}

// Attach opens a road to the agent of a running workspace.
func (c *Client) Attach(ctx context.Context, ref string) (Attachment, error) {
	return call[Attachment](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/attach", nil)
}

// AttachImages opens a road to a node that makes one image.
func (c *Client) AttachImages(ctx context.Context, req AttachImagesRequest) (Attachment, error) {
	return call[Attachment](ctx, c, http.MethodPost, "/v1/images/attach", req)
}

// Images lists.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	return list[Image](ctx, c, "/v1/images")
}

// Image finds by name or id, with its generations.
func (c *Client) Image(ctx context.Context, ref string) (Image, error) {
	return call[Image](ctx, c, http.MethodGet, "/v1/images/"+url.PathEscape(ref), nil)
}

// DeleteImage forgets an image.
func (c *Client) DeleteImage(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, "/v1/images/"+url.PathEscape(ref), nil, nil, nil)
}

// Nodes lists.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return list[Node](ctx, c, "/v1/nodes")
}

// RemoveNode forgets a node; with force, by the word that its host is gone.
func (c *Client) RemoveNode(ctx context.Context, ref string, force bool) (RemovedNode, error) {
	path := "/v1/nodes/" + url.PathEscape(ref)
	if force {
		path += "?force=true"
	}
	return call[RemovedNode](ctx, c, http.MethodDelete, path, nil)
}

// Tiers lists, in the order of the configuration.
func (c *Client) Tiers(ctx context.Context) ([]Tier, error) {
	return list[Tier](ctx, c, "/v1/tiers")
}

// CreateToken makes a token; its secret is in this answer only.
func (c *Client) CreateToken(ctx context.Context, req CreateTokenRequest) (CreatedToken, error) {
	return call[CreatedToken](ctx, c, http.MethodPost, "/v1/tokens", req)
}

// Tokens lists.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return list[Token](ctx, c, "/v1/tokens")
}

// DeleteToken revokes by name or id.
func (c *Client) DeleteToken(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(ref), nil, nil, nil)
}

// Events returns at most limit events after seq, oldest first, of one
// workspace when ref is not empty.
func (c *Client) Events(ctx context.Context, ref string, after int64, limit int) ([]Event, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	return list[Event](ctx, c, eventsPath(ref)+"?"+q.Encode())
}

// Sync implements Plane.
func (c *Client) Sync(ctx context.Context, req SyncRequest) (SyncResponse, error) {
	var out SyncResponse
	ctx, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(req.WaitMilli)*time.Millisecond)
	defer cancel()
	err := c.send(ctx, http.MethodPost, "/v1/plane/sync", nil, req, &out)
	return out, err
}

// BeginFlush implements Plane.
func (c *Client) BeginFlush(ctx context.Context, req BeginFlushRequest) (BeginFlushResponse, error) {
	return call[BeginFlushResponse](ctx, c, http.MethodPost, "/v1/plane/flushes", req)
}

// CommitFlush implements Plane.
func (c *Client) CommitFlush(ctx context.Context, req CommitFlushRequest) (CommitFlushResponse, error) {
	return call[CommitFlushResponse](ctx, c, http.MethodPost, "/v1/plane/flushes/"+url.PathEscape(string(req.Intent))+"/commit", req)
}

// CommitGeneration implements Plane.
func (c *Client) CommitGeneration(ctx context.Context, req CommitGenerationRequest) (Image, error) {
	return call[Image](ctx, c, http.MethodPost, "/v1/plane/generations", req)
}

func eventsPath(ref string) string {
	if ref == "" {
		return "/v1/events"
	}
	return "/v1/workspaces/" + url.PathEscape(ref) + "/events"
}

func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, method, path, nil, body, &out)
	return out, err
}

func keyHeader(key string) http.Header {
	if key == "" {
		return nil
	}
	return http.Header{IdempotencyHeader: {key}}
}

func list[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	out, err := call[List[T]](ctx, c, http.MethodGet, path, nil)
	return out.Items, err
}

func (c *Client) do(ctx context.Context, method, path string, h http.Header, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.send(ctx, method, path, h, in, out)
}

// send makes one call: in is sent as JSON unless nil, a success is read into
// out unless nil.
func (c *Client) send(ctx context.Context, method, path string, h http.Header, in, out any) error {
	res, err := c.open(ctx, method, path, h, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	if mediaType(res) != "application/json" {
		return foreign("did not answer JSON")
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	if err != nil {
		return lost(ctx, err)
	}
	if len(body) > maxAnswerBytes {
		return errs.New(errs.Internal, "%s %s: answer is larger than %d bytes", method, path, maxAnswerBytes)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return errs.Wrap(errs.Internal, err, "decode answer to %s %s", method, path)
	}
	return nil
}

// open makes one request and returns a successful response, whose body the
// caller closes.
func (c *Client) open(ctx context.Context, method, path string, h http.Header, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, errs.Wrap(errs.Internal, err, "encode %s %s", method, path)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base()+path, body)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%s %s", method, path)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	req.Header.Set(VersionHeader, Version)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+string(c.token))
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, lost(ctx, err)
	}
	// An error first: its hint tells more than the version header would.
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, responseError(res)
	}
	if err := checkServerVersion(res); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// base is the URL that requests are made to. Over a Unix socket the host is
// only a name for the Host header.
func (c *Client) base() string {
	if c.endpoint.Network == "unix" {
		return "http://billet"
	}
	return "http://" + c.endpoint.Address
}

func checkServerVersion(res *http.Response) error {
	switch v := res.Header.Get(VersionHeader); v {
	case Version:
		return nil
	case "":
		return foreign("did not say its API version")
	default:
		return errs.New(errs.Invalid, "the server speaks API version %q, this client version %q", v, Version).
			WithHint("use the billet binary that the server runs; compare: billet version")
	}
}

// lost gives a failed exchange its kind: the errors of Endpoint.Dial keep
// theirs, the caller's own cancellation stays recognisable, and everything
// else is a server that went away.
func lost(ctx context.Context, err error) error {
	var e *errs.Error
	if errors.As(err, &e) {
		return e
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return errs.New(errs.Unavailable, "the server did not answer in time").WithHint("see whether it is well with: billet check")
		}
		return cause
	}
	// url.Error repeats method and URL, which the caller knows.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &errs.Error{Kind: errs.Unavailable, Message: "the server went away", Hint: "see whether it is well with: billet check", Cause: err}
}

func mediaType(res *http.Response) string {
	t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return t
}
