// Package filesystempbconnect is the filesystem service of the sandbox contract as
// protoc-gen-connect-go makes it of filesystem.proto: handlers and clients. What it
// says is not implemented is for servers that leave a method out; ours, in
// package guest/filesystem, leaves out none.
package filesystempbconnect
