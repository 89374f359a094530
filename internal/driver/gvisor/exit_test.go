package gvisor

import (
	"strings"
	"testing"

	"github.com/billethq/billet/internal/cgroup"
	"github.com/billethq/billet/internal/model"
)

const newosproc = "runtime: failed to create new OS thread (have 16 already; errno=11)\nfatal error: newosproc\n\ngoroutine 1 [running]:\nmain.main()"

func TestJudge(t *testing.T) {
	const panicked = "panic: nil map\n\ngoroutine 7 [running]:\nx()"
	counted := func(oom, forks int64) cgroup.Counters { return cgroup.Counters{OOMKills: oom, ForksRefused: forks} }
	for name, tc := range map[string]struct {
		evidence evidence
		cause    model.Cause
		code     int
		detail   string
	}{
		"reboot outranks all":            {evidence{rebooted: true, stopping: true, code: unknownCode, panicLog: panicked}, model.CauseHostRebooted, 0, "started again"},
		"asked for":                      {evidence{stopping: true, code: unknownCode, counters: counted(1, 1)}, model.CauseStopped, 0, ""},
		"exit code":                      {evidence{code: 3, orderly: true}, model.CauseExited, 3, "code 3"},
		"last words":                     {evidence{code: 3, orderly: true, console: "no socket"}, model.CauseExited, 3, "code 3: no socket"},
		"exit code unheard":              {evidence{code: unknownCode, orderly: true}, model.CauseExited, 0, "unknown"},
		"exit after an old refused fork": {evidence{code: 0, orderly: true, counters: counted(0, 9)}, model.CauseExited, 0, "code 0"},
		"exit after an old kill":         {evidence{code: 0, orderly: true, counters: counted(2, 0)}, model.CauseExited, 0, "code 0"},
		"memory":                         {evidence{code: unknownCode, counters: counted(2, 0)}, model.CauseOutOfMemory, 0, "killed 2 of"},
		"memory took PID 1":              {evidence{code: killedCode, orderly: true, counters: counted(1, 0)}, model.CauseOutOfMemory, 0, "killed 1 of"},
		"PID 1 killed by a person":       {evidence{code: killedCode, orderly: true}, model.CauseExited, killedCode, "137"},
		"forks":                          {evidence{code: unknownCode, counters: counted(0, 5), panicLog: newosproc}, model.CauseTooManyProcesses, 0, "refused 5 forks"},
		"no thread but no counter":       {evidence{code: unknownCode, panicLog: newosproc}, model.CauseCrashed, 0, "newosproc"},
		"panic after old refused forks":  {evidence{code: unknownCode, counters: counted(0, 5), panicLog: panicked}, model.CauseCrashed, 0, "panic: nil map"},
		"panic":                          {evidence{code: unknownCode, panicLog: panicked}, model.CauseCrashed, 0, "panic: nil map"},
		"no trace":                       {evidence{code: unknownCode}, model.CauseKilled, 0, "gone"},
		"forks refused, then killed":     {evidence{code: unknownCode, counters: counted(0, 5)}, model.CauseKilled, 0, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.evidence)
			if got.Cause != tc.cause || got.Code != tc.code || !strings.Contains(got.Detail, tc.detail) {
				t.Errorf("judge(%+v): got %+v, want %s, %d, detail with %q", tc.evidence, got, tc.cause, tc.code, tc.detail)
			}
		})
	}
}

func TestPanicDetail_IsShort(t *testing.T) {
	for _, tc := range []struct{ log, want string }{
		{newosproc, "runtime: failed to create new OS thread (have 16 already; errno=11)\nfatal error: newosproc"},
		{"panic: x\n[signal]\n\ngoroutine 1 [running]:\nmain()", "panic: x\n[signal]"},
		{"goroutine 1 [running]:\nmain()", "goroutine 1 [running]:\nmain()"},
		{strings.Repeat("a\n", 100), "a\na\na\na\na\na"},
		{strings.Repeat("b", 5000), strings.Repeat("b", 1024)},
		{"", ""},
	} {
		if got := panicDetail(tc.log); got != tc.want {
			t.Errorf("panicDetail(%.40q…): got %q, want %q", tc.log, got, tc.want)
		}
	}
}
