package api

// Building an image runs over a road to a node (Service.AttachImages), whose
// ticket names the image and the kind: the client sends one HTTP/1.1 request,
//
//	POST /images?name=NAME&kind=KIND&source=SOURCE&disk=BYTES
//
// with the input as its body when KIND is "stream", and reads lines of JSON
// (application/x-ndjson), the last of which has Image or Problem.
const ImagesPath = "/images"

// ImageKind says where an image's content comes from.
type ImageKind string

// The kinds of sources.
const (
	ImageStream ImageKind = "stream" // the body: a tar of a root, an OCI layout or a docker save
	ImageOCI    ImageKind = "oci"    // SOURCE is a reference that the node pulls
	ImageDebian ImageKind = "debian" // the node bootstraps a Debian
)

// AttachImagesRequest says which image is to be made. What a name and a kind
// allow is decided before the input is sent.
type AttachImagesRequest struct {
	Name string    `json:"name"`
	Kind ImageKind `json:"kind"`
}

// ImageLine is one line of the answer.
type ImageLine struct {
	Progress *ImageProgress `json:"progress,omitempty"`
	Image    *Image         `json:"image,omitempty"`
	Problem  *Problem       `json:"problem,omitempty"`
}

// ImageProgress is how far a build is.
type ImageProgress struct {
	Stage   string `json:"stage"` // fetching, unpacking, bootstrapping, formatting, uploading
	Done    int64  `json:"done"`  // bytes
	Total   int64  `json:"total"` // bytes; 0: unknown
	Message string `json:"message,omitempty"`
}
