// What the requester's console says, in German.

export default {};
