// Package filesystempb is the generated code of the guest's filesystem service.
//
// filesystem.proto is the source; `go generate` needs protoc and its own
// message files (protobuf-compiler, libprotobuf-dev) and
// takes the plugins from the modules in go.mod.
package filesystempb

//go:generate sh -c "T=$(mktemp -d) && trap 'rm -rf $T' EXIT && GOBIN=$T go install google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go && PATH=$T:$PATH protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,simple=false filesystem.proto"
