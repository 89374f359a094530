// Package faults injects what a deployment must survive, and looks at what is
// left of it.
//
// Its tests run the roles apart, as real processes: the test binary starts
// itself as server, gateway and node, and the node starts it as volume
// process. They need the build tag "failpoint", because most faults are
// injected at a named step (package failpoint):
//
//	go test -tags failpoint ./internal/faults
//
// TestKill is the table failpoint.Steps() × {server, node, volume process,
// sandbox}: a step without a row fails it, and so does an armed step that no
// process reached.
package faults
