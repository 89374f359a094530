package filesystem_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/billethq/billet/internal/guest/filesystem"
	pb "github.com/billethq/billet/internal/guest/filesystempb"
	"github.com/billethq/billet/internal/guest/filesystempb/filesystempbconnect"
	"github.com/billethq/billet/internal/testenv"
)

const uid = 61234

// world is a service, a client of it and the home of its user.
type world struct {
	t       *testing.T
	home    string
	service *filesystem.Service
	client  filesystempbconnect.FilesystemClient
	now     time.Time
	user    string // whom requests name; "" is the default
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.NeedRoot(t)
	top := testenv.OpenDir(t)
	w := &world{t: t, home: filepath.Join(top, "home"), now: time.Unix(1_700_000_000, 0)}
	etc := filepath.Join(top, "etc")
	w.must(os.Mkdir(etc, 0o755))
	w.must(os.Mkdir(w.home, 0o755))
	w.must(os.Chown(w.home, uid, uid))
	passwd := fmt.Sprintf("root:x:0:0::/root:/bin/sh\nuser:x:%d:%d::%s:/bin/sh\n", uid, uid, w.home)
	w.must(os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd), 0o644))
	w.must(os.WriteFile(filepath.Join(etc, "group"), fmt.Appendf(nil, "root:x:0:\nstaff:x:%d:\n", uid), 0o644))
	w.service = filesystem.New(filesystem.Config{Etc: etc, Now: func() time.Time { return w.now }})
	mux := http.NewServeMux()
	w.service.Register(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(w.service.Close)
	// As the contract's clients do: JSON over HTTP/1.1.
	w.client = filesystempbconnect.NewFilesystemClient(server.Client(), server.URL, connect.WithProtoJSON())
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.home, name) }

// make makes files of the user's; a name that ends in "/" is a directory.
func (w *world) make(names ...string) {
	w.t.Helper()
	for _, name := range names {
		path := w.path(name)
		if strings.HasSuffix(name, "/") {
			w.must(os.Mkdir(path, 0o755))
		} else {
			w.must(os.WriteFile(path, []byte(name), 0o644))
		}
		w.must(os.Chown(path, uid, uid))
	}
}

func request[T any](w *world, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	if w.user != "" {
		req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(w.user+":")))
	}
	return req
}

func (w *world) stat(path string) (*pb.EntryInfo, error) {
	res, err := w.client.Stat(w.t.Context(), request(w, &pb.StatRequest{Path: path}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetEntry(), nil
}

func (w *world) list(path string, depth uint32) ([]string, error) {
	res, err := w.client.ListDir(w.t.Context(), request(w, &pb.ListDirRequest{Path: path, Depth: depth}))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range res.Msg.GetEntries() {
		all = append(all, e.GetPath())
	}
	return all, nil
}

func (w *world) mkdir(path string) (*pb.EntryInfo, error) {
	res, err := w.client.MakeDir(w.t.Context(), request(w, &pb.MakeDirRequest{Path: path}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetEntry(), nil
}

func (w *world) move(from, to string) (*pb.EntryInfo, error) {
	res, err := w.client.Move(w.t.Context(), request(w, &pb.MoveRequest{Source: from, Destination: to}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetEntry(), nil
}

func (w *world) remove(path string) error {
	_, err := w.client.Remove(w.t.Context(), request(w, &pb.RemoveRequest{Path: path}))
	return err
}

func TestStat(t *testing.T) {
	w := newWorld(t)
	w.make("dir/", "dir/file")
	old := time.Unix(1_000_000_000, 5000)
	w.must(os.Chtimes(w.path("dir/file"), old, old))
	w.must(os.Chmod(w.path("dir"), 0o750))
	w.must(os.Symlink("dir/file", w.path("link")))
	w.must(os.Symlink("none", w.path("broken")))
	target, broken := w.path("dir/file"), w.path("broken")
	file := &pb.EntryInfo{
		Name: "file", Type: pb.FileType_FILE_TYPE_FILE, Path: target, Size: 8, Mode: 0o644,
		Permissions: "-rw-r--r--", Owner: "user", Group: "staff", ModifiedTime: timestamppb.New(old),
	}
	for _, path := range []string{"dir/file", "~/dir/file", target, "dir/../dir//file"} {
		got, err := w.stat(path)
		if d := cmp.Diff(file, got, protocmp.Transform()); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", path, err, d)
		}
	}
	for path, want := range map[string]*pb.EntryInfo{
		"dir":    {Name: "dir", Type: pb.FileType_FILE_TYPE_DIRECTORY, Path: w.path("dir"), Mode: 0o750, Permissions: "drwxr-x---", Owner: "user", Group: "staff"},
		"link":   {Name: "link", Type: pb.FileType_FILE_TYPE_FILE, Path: w.path("link"), Mode: 0o644, Permissions: "Lrwxrwxrwx", Owner: "root", Group: "root", SymlinkTarget: &target},
		"broken": {Name: "broken", Path: broken, Permissions: "Lrwxrwxrwx", Owner: "root", Group: "root", SymlinkTarget: &broken},
		"/":      {Name: "/", Type: pb.FileType_FILE_TYPE_DIRECTORY, Path: "/", Mode: 0o755, Permissions: "drwxr-xr-x", Owner: "root", Group: "root"},
	} {
		got, err := w.stat(path)
		opts := cmp.Options{protocmp.Transform(), protocmp.IgnoreFields(&pb.EntryInfo{}, "modified_time", "size")}
		if d := cmp.Diff(want, got, opts); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", path, err, d)
		}
	}
}

func TestListDir(t *testing.T) {
	w := newWorld(t)
	w.make("b", "a/", "a/x", "a/y/", "a/y/z", "secret/", "secret/s")
	w.must(os.Chmod(w.path("secret"), 0))
	w.must(os.Symlink("a", w.path("link")))
	abs := func(names ...string) (all []string) {
		for _, n := range names {
			all = append(all, w.path(n))
		}
		return all
	}
	for _, c := range []struct {
		path  string
		depth uint32
		want  []string
	}{
		{"", 0, abs("a", "b", "link", "secret")},
		{w.home, 1, abs("a", "b", "link", "secret")},
		{".", 2, abs("a", "a/x", "a/y", "b", "link", "secret")},
		{"~", 1 << 31, abs("a", "a/x", "a/y", "a/y/z", "b", "link", "secret")},
		{"link", 2, abs("link/x", "link/y", "link/y/z")}, // through the link, by the name that was asked for
		{"a/y", 1, abs("a/y/z")},
	} {
		got, err := w.list(c.path, c.depth)
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%q to %d: %v (-want +got):\n%s", c.path, c.depth, err, d)
		}
	}
}

func TestMakeDirMoveRemove(t *testing.T) {
	w := newWorld(t)
	e, err := w.mkdir("new/below")
	if err != nil || e.GetPath() != w.path("new/below") || e.GetType() != pb.FileType_FILE_TYPE_DIRECTORY || e.GetOwner() != "user" {
		t.Errorf("MakeDir: %v, %v", e, err)
	}
	w.make("f", "g")
	e, err = w.move("f", "other/dir/f2")
	if err != nil || e.GetPath() != w.path("other/dir/f2") || e.GetName() != "f2" || e.GetSize() != 1 {
		t.Errorf("Move: %v, %v", e, err)
	}
	if made, err := w.stat("other"); err != nil || made.GetOwner() != "user" {
		t.Errorf("the directory above: %v, %v", made, err)
	}
	if _, err = w.move("g", "other/dir/f2"); err != nil { // replaces
		t.Error(err)
	}
	if b, err := os.ReadFile(w.path("other/dir/f2")); string(b) != "g" {
		t.Errorf("after the second move: %q, %v", b, err)
	}
	w.must(os.Symlink("other", w.path("link")))
	for _, path := range []string{"link", "new", "never/there"} {
		if err := w.remove(path); err != nil {
			t.Errorf("Remove %s: %v", path, err)
		}
	}
	if got, err := w.list("", 3); err != nil || cmp.Diff([]string{w.path("other"), w.path("other/dir"), w.path("other/dir/f2")}, got) != "" {
		t.Errorf("what is left: %v, %v", got, err)
	}
}

// Each method with each refusal of the contract.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.make("file", "dir/", "full/", "full/f", "other/", "other/f")
	w.must(os.Symlink("loop", w.path("loop")))
	root := filepath.Join(filepath.Dir(w.home), "root")
	w.must(os.Mkdir(root, 0o700))
	w.must(os.WriteFile(filepath.Join(root, "f"), nil, 0o644))
	stat := func(p string) error { _, err := w.stat(p); return err }
	list := func(p string) error { _, err := w.list(p, 1); return err }
	mkdir := func(p string) error { _, err := w.mkdir(p); return err }
	from := func(p string) error { _, err := w.move(p, "moved/to"); return err }
	to := func(p string) error { _, err := w.move("full", p); return err }
	watch := func(p string) error {
		s, err := w.client.WatchDir(t.Context(), request(w, &pb.WatchDirRequest{Path: p}))
		if err != nil {
			return err
		}
		defer s.Close()
		s.Receive()
		return s.Err()
	}
	watcher := func(p string) error {
		_, err := w.client.CreateWatcher(t.Context(), request(w, &pb.CreateWatcherRequest{Path: p}))
		return err
	}
	methods := map[string]func(string) error{
		"Stat": stat, "ListDir": list, "MakeDir": mkdir, "Move": from, "Move to": to, "Remove": w.remove, "WatchDir": watch, "CreateWatcher": watcher,
	}
	for name, call := range methods {
		for _, bad := range []string{"~nobody/x", "a\x00b", strings.Repeat("x/", 3000), strings.Repeat("x", 300)} {
			if got := connect.CodeOf(call(bad)); got != connect.CodeInvalidArgument {
				t.Errorf("%s %.20q: %v, want invalid_argument", name, bad, got)
			}
		}
		w.user = "nobody-here"
		if got := connect.CodeOf(call("file")); got != connect.CodeUnauthenticated {
			t.Errorf("%s as nobody: %v, want unauthenticated", name, got)
		}
		w.user = ""
		if got := connect.CodeOf(call(filepath.Join(root, "f"))); got != connect.CodePermissionDenied {
			t.Errorf("%s in root's directory: %v, want permission_denied", name, got)
		}
	}
	for _, c := range []struct {
		name, path string
		call       func(string) error
		want       connect.Code
	}{
		{"Stat", "missing", stat, connect.CodeNotFound},
		{"Stat", "file/below", stat, connect.CodeNotFound},
		{"Stat", "loop/x", stat, connect.CodeFailedPrecondition},
		{"ListDir", "missing", list, connect.CodeNotFound},
		{"ListDir", "file", list, connect.CodeInvalidArgument},
		{"ListDir", "loop", list, connect.CodeFailedPrecondition},
		{"MakeDir", "dir", mkdir, connect.CodeAlreadyExists},
		{"MakeDir", "/", mkdir, connect.CodeAlreadyExists},
		{"MakeDir", "file", mkdir, connect.CodeInvalidArgument},
		{"MakeDir", "file/below", mkdir, connect.CodeInvalidArgument},
		{"Move", "missing", from, connect.CodeNotFound},
		{"Move to", "other", to, connect.CodeFailedPrecondition},
		{"Move to", "full/into/itself", to, connect.CodeInvalidArgument},
		{"Move to", "file/below", to, connect.CodeInvalidArgument},
		{"Remove", "/", w.remove, connect.CodeInvalidArgument},
		{"WatchDir", "missing", watch, connect.CodeNotFound},
		{"WatchDir", "file", watch, connect.CodeInvalidArgument},
		{"CreateWatcher", "missing", watcher, connect.CodeNotFound},
		{"CreateWatcher", "file", watcher, connect.CodeInvalidArgument},
	} {
		if got := connect.CodeOf(c.call(c.path)); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.name, c.path, got, c.want)
		}
	}
	if _, err := os.Stat(w.path("moved")); err == nil {
		t.Error("a move of what is not there made a directory")
	}
	req := connect.NewRequest(&pb.StatRequest{Path: "file"})
	req.Header().Set("Authorization", "Bearer x")
	if _, err := w.client.Stat(t.Context(), req); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("another scheme: %v, want unauthenticated", err)
	}
	w.user = "root"
	if _, err := w.stat(filepath.Join(root, "f")); err != nil {
		t.Errorf("as root: %v", err)
	}
}

// A directory of a guest may hold more than an answer can.
func TestListDir_IsBounded(t *testing.T) {
	w := newWorld(t)
	w.make("full/")
	for i := range 50_001 {
		f, err := os.Create(w.path(fmt.Sprintf("full/%d", i)))
		w.must(err)
		w.must(f.Close())
	}
	if _, err := w.list("full", 1); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v, want resource_exhausted", err)
	}
	if err := w.remove("full"); err != nil {
		t.Error(err)
	}
}
