package model

// DomainKey is the BLAKE3 key of one dedup domain.
type DomainKey struct {
	Domain string `json:"domain"` // "deployment" or a tenant id
	Key    []byte `json:"key"`    // 32 bytes
}

// DeploymentDomain is the domain of images and generations, which every tenant
// may build on.
const DeploymentDomain = "deployment"
