"""Graphs, paths and a picture (networkx)."""

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import networkx as nx

graph = nx.Graph()
graph.add_weighted_edges_from([('a', 'b', 2), ('b', 'c', 1), ('a', 'd', 7), ('c', 'd', 3)])
graph

# %%
nx.shortest_path(graph, 'a', 'd', weight='weight'), nx.shortest_path_length(graph, 'a', 'd', weight='weight')

# %%
graph.nodes['a']['colour'] = 'red'
graph.add_edge('d', 'e', weight=1)
nx.get_node_attributes(graph, 'colour'), graph.number_of_edges()

# %%
pagerank = nx.pagerank(graph)
max(pagerank, key=pagerank.get)

# %%
places = nx.spring_layout(graph, seed=4)
plt.figure(figsize=(3, 3))
nx.draw(graph, places, with_labels=True)
plt.show()

# %%
club = nx.karate_club_graph()
groups = nx.community.louvain_communities(club, seed=1)
sorted(len(group) for group in groups)

# %%
view = graph.subgraph(['a', 'b', 'c'])
sorted(view.edges)

# %%
tree = nx.bfs_tree(graph, 'a')
list(nx.topological_sort(tree))
