// Package processpbconnect is the process service of the sandbox contract as
// protoc-gen-connect-go makes it of process.proto: handlers and clients. What it
// says is not implemented is for servers that leave a method out; ours, in
// package guest/process, leaves out none.
package processpbconnect
