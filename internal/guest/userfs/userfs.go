// Package userfs does file operations with the rights of one of the guest's users.
//
// The agent is root in the guest and its clients name a user, whose rights must
// be the boundary: neither a path nor a link that a user made may lead the
// agent where that user could not go. So every system call on a guest's file is
// made by a thread that has the user's ids, and the kernel judges it, with the
// owner of what is made.
//
// Paths are walked here, element by element, and no link is left to the kernel.
// Following /proc/self/fd/N it would open what the agent has open for somebody
// else, without looking at the directories above; its text, walked, leads
// through them.
package userfs

import (
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/users"
)

// FS is the guest's file system as one user sees it. It is valid inside Do and
// on the goroutine that Do calls.
type FS struct {
	user     users.User
	etc      string
	switched bool   // the thread is another user than the agent
	names    *names // read once it is needed
}

// User is the user whose rights these are.
func (f *FS) User() users.User { return f.user }

// uid is the thread's.
func (f *FS) uid() int {
	if f.switched {
		return int(f.user.UID)
	}
	return os.Geteuid()
}

// Do calls do with the rights of u, on a thread of its own, and waits for it.
// The account files are in etc. An agent that is not root can be nobody else;
// then everything is done as the agent.
func Do(etc string, u users.User, do func(*FS) error) error {
	f := &FS{user: u, etc: etc, switched: os.Geteuid() == 0 && (u.UID != 0 || u.GID != 0 || len(u.Groups) > 0)}
	if !f.switched {
		return do(f)
	}
	var (
		err      error
		panicked any
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		// Caught here and raised again in the caller, whose server survives it:
		// the agent is PID 1, and its end is the guest's.
		defer func() { panicked = recover() }()
		err = onOwnThread(func() error {
			if err := become(u); err != nil {
				return errs.Wrap(errs.Internal, err, "become user %q", u.Name)
			}
			return do(f)
		})
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// onOwnThread calls do on a thread that ends with the calling goroutine, so
// that nothing has to be restored and no other code can meet it. The main
// thread cannot end: it is held until do was called on another.
func onOwnThread(do func() error) error {
	runtime.LockOSThread() // for good: the runtime ends the thread with its goroutine
	if unix.Gettid() != unix.Getpid() {
		return do()
	}
	defer runtime.UnlockOSThread()
	result := make(chan error, 1)
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		result <- onOwnThread(do)
	}()
	if p := <-panicked; p != nil {
		panic(p)
	}
	return <-result
}

// keep tells the kernel not to change an id.
const keep = ^uintptr(0)

// become gives the calling thread alone the ids of u. The calls are raw since
// the usual ones change every thread of the process. It is the effective ids
// that change, because gVisor has no file system ids; the kernel takes the
// capabilities away with them, and the real and saved ids, which stay root's,
// keep the user's processes from signalling or tracing the agent.
func become(u users.User) error {
	var groups unsafe.Pointer
	if len(u.Groups) > 0 {
		groups = unsafe.Pointer(&u.Groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(groups), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.GID), keep); errno != 0 {
		return os.NewSyscallError("setresgid", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.UID), keep); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}

// Caller finds the account that a request names by Authorization: Basic, whose
// password is ignored: who may call at all is decided before the guest.
func Caller(etc string, h http.Header) (users.User, error) {
	var name string
	if auth := h.Get("Authorization"); auth != "" {
		scheme, param, _ := strings.Cut(auth, " ")
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(param))
		if !strings.EqualFold(scheme, "Basic") || err != nil {
			return users.User{}, errs.New(errs.Unauthenticated, "malformed Authorization header")
		}
		name, _, _ = strings.Cut(string(raw), ":")
	}
	return Account(etc, name)
}

// Account finds an account by its name, "" being the default one.
func Account(etc, name string) (users.User, error) {
	u, err := users.Lookup(etc, name)
	if errors.Is(err, users.ErrUnknown) {
		return u, errs.Wrap(errs.Unauthenticated, err, "look up the user")
	}
	return u, errs.Wrap(errs.Internal, err, "look up the user")
}
