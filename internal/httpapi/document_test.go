package httpapi

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func TestMain(m *testing.M) {
	for _, t := range []string{api.EventStreamType, "application/yaml"} {
		openapi3filter.RegisterBodyDecoder(t, openapi3filter.PlainBodyDecoder)
	}
	m.Run()
}

func TestDocument_IsValid(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if doc.Info.Version != api.Version {
		t.Errorf("version is %q, want %q", doc.Info.Version, api.Version)
	}
}

func TestDocument_HasTheRoutesOfTheMux(t *testing.T) {
	var served, described []string
	for _, rt := range newServer(t).handler.routes() {
		served = append(served, rt.method+" "+rt.path)
	}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			described = append(described, method+" "+path)
			if op.Responses.Default() == nil {
				t.Errorf("%s %s does not say what its other errors look like", method, path)
			}
			if op.RequestBody != nil && (op.Responses.Value("413") == nil || op.Responses.Value("415") == nil) {
				t.Errorf("%s %s takes a body and does not describe 413 and 415", method, path)
			}
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("-served +described:\n%s", diff)
	}
}

// TestDocument_HasTheFieldsOfTheTypes holds each schema to the Go type: the
// same fields, and those that are always sent are required.
func TestDocument_HasTheFieldsOfTheTypes(t *testing.T) {
	types := map[string]any{
		"Problem": api.Problem{}, "Health": api.Health{}, "Info": api.Info{}, "Shape": model.Shape{}, "Capacity": model.Capacity{}, "Phase": model.Phase{},
		"Instance": api.Instance{}, "Workspace": api.Workspace{}, "Attachment": api.Attachment{}, "Progress": api.Progress{}, "Snapshot": api.Snapshot{},
		"Generation": api.Generation{}, "Image": api.Image{}, "Node": api.Node{}, "RemovedNode": api.RemovedNode{}, "LostInstance": api.LostInstance{}, "Tier": api.Tier{}, "Token": api.Token{}, "CreatedToken": api.CreatedToken{}, "Event": api.Event{},
		"CreateWorkspaceRequest": api.CreateWorkspaceRequest{}, "UpdateWorkspaceRequest": api.UpdateWorkspaceRequest{}, "StartWorkspaceRequest": api.StartWorkspaceRequest{},
		"ForkWorkspaceRequest": api.ForkWorkspaceRequest{}, "StopWorkspaceRequest": api.StopWorkspaceRequest{}, "NextResume": api.NextResume{}, "ConnectRequest": api.ConnectRequest{}, "ConnectPhase": api.ConnectPhase{}, "ConnectUpdate": api.ConnectUpdate{}, "CommitMemory": api.CommitMemory{}, "AttachImagesRequest": api.AttachImagesRequest{}, "CreateTokenRequest": api.CreateTokenRequest{},
		"SSHInfo": api.SSHInfo{}, "SSHKey": api.SSHKey{}, "AddSSHKeyRequest": api.AddSSHKeyRequest{}, "SSHCertificateRequest": api.SSHCertificateRequest{}, "SSHCertificate": api.SSHCertificate{},
		"SSHHost": api.SSHHost{}, "SSHGrantRequest": api.SSHGrantRequest{}, "SSHGrant": api.SSHGrant{}, "EnterRequest": api.EnterRequest{}, "SSHKeyList": api.List[int]{},
		"OpenPortRequest": api.OpenPortRequest{}, "PortLink": api.PortLink{}, "SharePortRequest": api.SharePortRequest{}, "Share": api.Share{}, "ShareList": api.List[int]{}, "VisitRequest": api.VisitRequest{}, "Entered": api.Entered{}, "VisitUpdate": api.VisitUpdate{}, "AdmitRequest": api.AdmitRequest{}, "Admitted": api.Admitted{},
		"SyncRequest": api.SyncRequest{}, "ObservedInstance": api.ObservedInstance{}, "SyncResponse": api.SyncResponse{}, "DesiredInstance": api.DesiredInstance{},
		"Projection": api.Projection{}, "Gateway": api.Gateway{}, "DomainKey": model.DomainKey{}, "BeginFlushRequest": api.BeginFlushRequest{}, "BeginFlushResponse": api.BeginFlushResponse{},
		"CommitFlushRequest": api.CommitFlushRequest{}, "CommitFlushResponse": api.CommitFlushResponse{}, "CommitGenerationRequest": api.CommitGenerationRequest{},
		"WorkspaceList": api.List[int]{}, "SnapshotList": api.List[int]{}, "ImageList": api.List[int]{}, "NodeList": api.List[int]{}, "TierList": api.List[int]{}, "TokenList": api.List[int]{}, "EventList": api.List[int]{},
	}
	notRequired := []string{"SyncRequest.observed"} // a receiver takes its absence
	doc := document(t)
	for name, ref := range doc.Components.Schemas {
		if !ref.Value.Type.Is("object") {
			continue
		}
		v, known := types[name]
		if !known {
			t.Errorf("schema %s is no type", name)
			continue
		}
		if ref.Value.AdditionalProperties.Has == nil || *ref.Value.AdditionalProperties.Has {
			t.Errorf("schema %s allows any other field", name)
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if tag, options, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				want[tag] = !strings.Contains(options, "omitempty") && !slices.Contains(notRequired, name+"."+tag)
			}
		}
		for field := range ref.Value.Properties {
			got[field] = slices.Contains(ref.Value.Required, field)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (field: required) -type +schema:\n%s", name, diff)
		}
	}
	for name := range types {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("type %s has no schema", name)
		}
	}
}

// TestDocument_HasTheWordsOfTheModel holds the closed sets to the constants.
func TestDocument_HasTheWordsOfTheModel(t *testing.T) {
	schemas := document(t).Components.Schemas
	enum := func(name, field string) []string {
		s := schemas[name].Value
		if field != "" {
			s = s.Properties[field].Value
		}
		var out []string
		for _, v := range s.Enum {
			out = append(out, v.(string))
		}
		return out
	}
	if diff := cmp.Diff(words(errs.Kinds()), enum("Problem", "kind")); diff != "" {
		t.Errorf("kinds -code +document:\n%s", diff)
	}
	if diff := cmp.Diff(words(model.InstanceStates()), enum("Instance", "state")); diff != "" {
		t.Errorf("instance states -code +document:\n%s", diff)
	}
	for _, k := range errs.Kinds() {
		p := api.ProblemOf(errs.New(k, "message").WithHint("hint"))
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		_ = json.Unmarshal(data, &v)
		if err := schemas["Problem"].Value.VisitJSON(v); err != nil {
			t.Errorf("problem of kind %s: %v", k, err)
		}
		if back := p.Err(); errs.KindOf(back) != k || errs.HintOf(back) != "hint" || back.Error() != "message" {
			t.Errorf("%s comes back as %s %q hint %q", k, errs.KindOf(back), back, errs.HintOf(back))
		}
	}
}

func words[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = string(v)
	}
	return out
}
